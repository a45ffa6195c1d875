package main

import (
	"context"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// memory is the average memory of the process, server and clients, over the first and the last third of the time.
type memory struct {
	heap [2]float64 // live objects at the last garbage collection
	rss  [2]float64 // resident; 0: unknown
}

const sampleEvery = 20 * time.Millisecond

func sampleMemory(ctx context.Context, until time.Time) memory {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var heap, rss []float64
	for ctx.Err() == nil && time.Now().Before(until) {
		metrics.Read(live)
		heap = append(heap, float64(live[0].Value.Uint64()))
		rss = append(rss, resident())
		sleepUntil(ctx, time.Now().Add(sampleEvery))
	}
	return memory{heap: thirds(heap), rss: thirds(rss)}
}

// resident reads the resident memory on Linux.
func resident() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return float64(pages * os.Getpagesize())
}

// thirds are the means of the first and the last third.
func thirds(all []float64) [2]float64 {
	n := max(len(all)/3, 1)
	if len(all) == 0 {
		return [2]float64{}
	}
	return [2]float64{mean(all[:n]), mean(all[len(all)-n:])}
}

func mean(all []float64) float64 {
	var sum float64
	for _, v := range all {
		sum += v
	}
	return sum / float64(len(all))
}
