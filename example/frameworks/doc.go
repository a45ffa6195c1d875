// Package frameworks shows httpguard with chi, echo and gin. It is a module of its own, so that wllock does not depend on
// them. Copy the adapters: they are a few lines each.
package frameworks
