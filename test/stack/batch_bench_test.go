package stack_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/redistest"
)

// BenchmarkBatchOfWork has 4 instances with 64 callers each do 1 ms of work: an operation is one call. max=1 is the limit of one after
// the other.
func BenchmarkBatchOfWork(b *testing.B) {
	for name, backend := range map[string]func() distributed.Backend{
		"memory": func() distributed.Backend { return memlock.New() },
		"redis":  func() distributed.Backend { return redisOn(b, redistest.Start(b).Addr) },
	} {
		for _, max := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/max=%d", name, max), func(b *testing.B) {
				calls := make(chan int, 256)
				var all sync.WaitGroup
				shared := backend()
				for range 4 {
					work(b, shared, &all, calls, wllock.WithMaxBatch(max))
				}
				for i := 0; b.Loop(); i++ {
					calls <- i
				}
				close(calls)
				all.Wait()
			})
		}
	}
}

// work has 64 callers of an instance of its own do what comes.
func work(b *testing.B, backend distributed.Backend, all *sync.WaitGroup, calls <-chan int, opts ...wllock.CallOption) {
	l := lockerOn(b, backend, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))
	call := wllock.WrapBatch(l, "product", func(int) string { return "1000" }, func(context.Context, []*wllock.Item[int, int]) error {
		time.Sleep(time.Millisecond)
		return nil
	}, opts...)
	for range 64 {
		all.Go(func() {
			for a := range calls {
				_, _ = call(context.Background(), a)
			}
		})
	}
}
