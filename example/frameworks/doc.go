// Package frameworks shows httpguard with chi and with echo v4. It is a module of its own, so that wllock does not depend on
// them. For gin and echo v5 there are the packages ginguard and echoguard; the adapter for echo v4 is a few lines to copy.
package frameworks
