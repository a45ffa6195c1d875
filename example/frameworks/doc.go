// Package frameworks shows httpguard with chi, echo and gin. It is a module of its own, so that these do not come with
// wllock. Copy the adapters: they are a few lines each.
package frameworks
