//go:build !race

package local_test

const raceFactor = 1
