// Package test holds tests of the whole, and those that need what no importer of wllock should: SDKs and other people's
// middleware. It has tests only.
package test
