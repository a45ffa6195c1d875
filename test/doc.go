// Package test holds the tests of the whole stack, and those that need what importers of wllock should not: SDKs and
// other people's middleware. It has tests only.
package test
