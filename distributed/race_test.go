//go:build race

package distributed_test

const manyLeases = 20_000 // the race detector makes heaps of 100,000 a matter of many seconds
