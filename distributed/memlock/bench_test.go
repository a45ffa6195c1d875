package memlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// BenchmarkFreeKey is the least that a lone caller on a key pays: to enter and to release.
func BenchmarkFreeKey(b *testing.B) {
	backend, ctx := memlock.New(), context.Background()
	req := distributed.Request{Key: "order:product:1000", Instance: "a", TTL: 5 * time.Second}
	b.ReportAllocs()
	for b.Loop() {
		lease, _, err := backend.Enter(ctx, req)
		if err != nil {
			b.Fatal(err)
		}
		lease.Release(ctx)
	}
}

// BenchmarkFreeKeyPrev is the same in one exchange: the next Enter releases each lease.
func BenchmarkFreeKeyPrev(b *testing.B) {
	backend, ctx := memlock.New(), context.Background()
	req := distributed.Request{Key: "order:product:1000", Instance: "a", TTL: 5 * time.Second}
	b.ReportAllocs()
	for b.Loop() {
		lease, _, err := backend.Enter(ctx, req)
		if err != nil {
			b.Fatal(err)
		}
		req.Prev = lease
	}
}

// BenchmarkFreeKeysParallel shows that different keys do not slow each other down.
func BenchmarkFreeKeysParallel(b *testing.B) {
	backend, ctx := memlock.New(), context.Background()
	var workers atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		key := fmt.Sprintf("order:product:%d", workers.Add(1))
		req := distributed.Request{Key: key, Instance: key, TTL: 5 * time.Second}
		for pb.Next() {
			lease, _, err := backend.Enter(ctx, req)
			if err != nil {
				b.Error(err)
				return
			}
			lease.Release(ctx)
		}
	})
}

// BenchmarkHandOver is a key that goes back and forth between two instances, each queued while the other holds it.
func BenchmarkHandOver(b *testing.B) {
	backend, ctx := memlock.New(), context.Background()
	req := distributed.Request{Key: "order:product:1000", Instance: "a", TTL: 5 * time.Second}
	lease, _, err := backend.Enter(ctx, req)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		var place distributed.Place
		req.Instance = [...]string{"b", "a"}[i%2]
		if _, place, err = backend.Enter(ctx, req); err != nil {
			b.Fatal(err)
		}
		lease.Release(ctx)
		lease = <-place.Granted()
	}
}
