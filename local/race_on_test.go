//go:build race

package local_test

// raceFactor is how much slower things may be under the race detector, which makes every step some 5 to 10 times as dear.
const raceFactor = 5
