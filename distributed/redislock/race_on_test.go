//go:build race

package redislock

const raceDetector = true
