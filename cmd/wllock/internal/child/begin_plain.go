//go:build linux && !cgo

package child

// Assembly writes these before Go runs, on the processors that have it. On others they stay empty.
var ignored, blocked set
