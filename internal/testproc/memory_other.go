//go:build !linux

package testproc

// DataDir is where servers have their data: "" is the folder of temporary files.
func DataDir() string { return "" }
