// Package heldkey has the context key of the innermost lock, for adapters of frameworks whose contexts find only what was put into them.
package heldkey

// Key is a string, because the context of gin knows values of its own by strings only. The value is package wllock's affair.
const Key = "github.com/wllock/wllock/held"
