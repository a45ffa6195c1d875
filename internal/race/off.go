//go:build !race

// Package race says whether the race detector is on, which makes every step 5 to 10 times as slow.
package race

// Enabled reports that the race detector is on.
const Enabled = false
