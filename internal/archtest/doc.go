// Package archtest holds the arrows between the rooms of this repository: a room never imports one above it, siblings
// never import each other, and a program that imports the library does not link what it has no use for. It also compares
// the modules. It has tests only; the table of rooms is in rooms_test.go.
package archtest
