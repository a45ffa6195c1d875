//go:build !race

package distributed_test

const manyLeases = 100_000
