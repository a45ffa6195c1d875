//go:build !race

package redislock

const raceDetector = false
