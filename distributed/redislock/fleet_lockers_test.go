package redislock

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testproc"
)

// runLockers is a process of the fleet whose callers ask a Locker for permits.
func runLockers(ctx context.Context, b *Backend, ttl time.Duration, gates *testproc.Turnstile, limit, callers int) {
	l, err := wllock.New("shop", b, wllock.WithLeaseTTL(ttl), wllock.WithMaxHandoffs(32), wllock.WithOwnedBackend())
	if err != nil {
		panic(err)
	}
	free := make(chan *atomic.Int64, 2*limit) // as many as can be inside, and some
	for range cap(free) {
		free <- gates.Gate()
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := l.Do(ctx, "product", "1", func(ctx context.Context) error {
					held, _ := wllock.HeldFrom(ctx)
					goThrough(held, gates, <-free, free, limit)
					return nil
				}, wllock.Permits(limit)); err != nil {
					gates.Errors.Add(1)
				}
			}
		})
	}
	all.Wait()
	closing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Close(closing)
}

// goThrough is what a caller does that has a permit. A fence may be smaller than that of a caller whose lease is still held, or was
// held when this one was granted, so it is not compared.
func goThrough(held *wllock.Held, gates *testproc.Turnstile, gate *atomic.Int64, free chan<- *atomic.Int64, limit int) {
	gates.Enter(gate, held.Until(), limit)
	if rand.IntN(1024) == 0 {
		time.Sleep(rand.N(2 * time.Millisecond))
	}
	if held.Err() != nil {
		gates.Lost.Add(1)
	}
	gates.Leave(gate, held.Fence())
	free <- gate
}
