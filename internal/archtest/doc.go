// Package archtest holds the arrows between the rooms of this repository: a room never imports one above it, and siblings never
// import each other. A program that imports the library does not link what it has no use for. It also compares the modules, and
// reads the pages and comments. It has tests only: the table of rooms is that of CONTRIBUTING.md.
package archtest
