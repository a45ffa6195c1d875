package wllock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

var errSoldOut = errors.New("sold out")

// A shop sells the last 3 pieces to 5 buyers. While somebody else works on the product they queue, and then one run of the function, which
// would be one transaction, serves them all, in the order of their arrival; each gets an answer of its own.
func ExampleWrapBatch() {
	ctx := context.Background()
	locker, _ := wllock.New("shop", memlock.New())
	defer func() { _ = locker.Close(ctx) }()

	type order struct{ product, buyer string }
	stock, next := map[string]int{"1000": 3}, 1
	buy := wllock.WrapBatch(locker, "product", func(o order) string { return o.product },
		func(ctx context.Context, batch []*wllock.Item[order, int]) error {
			// Begin the transaction here; its first statement claims the row for the fence of wllock.HeldFrom(ctx).
			for _, item := range batch {
				if stock[item.Arg.product] == 0 {
					item.Err = errSoldOut // of this buyer alone
					continue
				}
				stock[item.Arg.product]--
				item.Result = next
				next++
			}
			return nil // Commit. After an error, all buyers get that, and nothing was sold.
		})

	other, _ := locker.Acquire(ctx, "product", "1000")
	var all sync.WaitGroup
	answers := make([]string, 5)
	for i := range answers {
		all.Go(func() {
			number, err := buy(ctx, order{"1000", fmt.Sprint("buyer ", i)})
			answers[i] = fmt.Sprint(number, " ", err)
		})
		for locker.Stats().Total.Waiting < int64(i+1) {
			time.Sleep(time.Millisecond) // one after the other, so that the output is the same each time
		}
	}
	_ = other.Release(ctx)
	all.Wait()
	for _, a := range answers {
		fmt.Println(a)
	}
	stats := locker.Stats().Total
	fmt.Println(stats.Batches, "run,", stats.Batched, "taken along")
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 3 <nil>
	// 0 sold out
	// 0 sold out
	// 1 run, 4 taken along
}

// A handler over a batch guard: the requests that wait for one product are served together. Middleware such as httpguard has one lock
// for each request, so here the handler itself calls the guard.
func ExampleWrapBatch_handler() {
	locker, _ := wllock.New("shop", memlock.New(), wllock.WithThreshold(500))
	defer func() { _ = locker.Close(context.Background()) }()

	stock := 1
	buy := wllock.WrapBatch(locker, "product", func(product string) string { return product },
		func(ctx context.Context, batch []*wllock.Item[string, int]) error {
			for _, item := range batch {
				if stock == 0 {
					item.Err = errSoldOut
					continue
				}
				stock--
				item.Result = stock
			}
			return nil
		}, wllock.WithWait(2*time.Second))

	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{product}", func(w http.ResponseWriter, r *http.Request) {
		left, err := buy(r.Context(), r.PathValue("product"))
		var e *wllock.Error
		switch {
		case err == nil:
			_ = json.NewEncoder(w).Encode(map[string]int{"left": left})
		case errors.Is(err, errSoldOut):
			http.Error(w, "sold out", http.StatusConflict)
		case errors.As(err, &e) && e.Ran: // the order may have been carried out
			http.Error(w, "look at your orders", http.StatusServiceUnavailable)
		case errors.Is(err, wllock.ErrQueueFull), errors.Is(err, wllock.ErrWaitTimeout):
			http.Error(w, "try later", http.StatusTooManyRequests)
		default:
			http.Error(w, "please try again", http.StatusServiceUnavailable)
		}
	})
	for range 2 {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders/1000", nil))
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 200 {"left":0}
	// 409 sold out
}

// Four processes miss the same key of a cache at the same time, with 16 callers each. One of all 64 computes the value; those that
// waited in its process ride with it, and each other process looks into the cache once more.
func ExampleWrapBatch_cacheFill() {
	ctx, locks := context.Background(), memlock.New() // over Redis: redislock
	var cache sync.Map                                // over Redis: GET and SET with a time to live
	var computed atomic.Int32

	var all sync.WaitGroup
	for range 4 {
		locker, _ := wllock.New("cache", locks)
		defer func() { _ = locker.Close(ctx) }()
		fill := wllock.WrapBatch(locker, "value", func(key string) string { return key },
			func(ctx context.Context, batch []*wllock.Item[string, string]) error {
				key := batch[0].Arg // of all
				value, ok := cache.Load(key)
				if !ok { // nobody has computed it since they looked
					computed.Add(1)
					time.Sleep(20 * time.Millisecond)
					value = "the value of " + key
					cache.Store(key, value)
				}
				for _, item := range batch {
					item.Result = value.(string)
				}
				return nil
			}, wllock.WithMaxBatch(wllock.Unlimited))
		get := func(key string) (string, error) {
			if value, ok := cache.Load(key); ok {
				return value.(string), nil
			}
			return fill(ctx, key)
		}
		for range 16 {
			all.Go(func() {
				if value, err := get("42"); err != nil || value != "the value of 42" {
					fmt.Println(value, err)
				}
			})
		}
	}
	all.Wait()
	fmt.Println("computed:", computed.Load())
	// Output: computed: 1
}

// An audit log is a chain: each line contains the hash of the line before, so lines are written one at a time. A batch writes many lines
// with one write, and every caller knows when its own is on the disk.
func ExampleWrapBatch_auditLog() {
	ctx := context.Background()
	locker, _ := wllock.New("audit", memlock.New())
	defer func() { _ = locker.Close(ctx) }()

	var log []string
	writes := 0
	record := wllock.WrapBatch(locker, "log", func(string) string { return "2026" },
		func(ctx context.Context, batch []*wllock.Item[string, int]) error {
			lines := make([]string, 0, len(batch))
			for _, item := range batch {
				item.Result = len(log) + len(lines) // the number of the line
				lines = append(lines, item.Arg)
			}
			writes++ // one INSERT with many rows, or one write and one fsync
			log = append(log, lines...)
			return nil
		})

	other, _ := locker.Acquire(ctx, "log", "2026")
	var all sync.WaitGroup
	var numbers [100]int // of each event's line
	for i := range numbers {
		all.Go(func() {
			n, err := record(ctx, fmt.Sprint("event ", i))
			if err != nil {
				fmt.Println(err)
			}
			numbers[i] = n
		})
	}
	for locker.Stats().Total.Waiting < 100 {
		time.Sleep(time.Millisecond)
	}
	_ = other.Release(ctx)
	all.Wait()
	for i, n := range numbers {
		if log[n] != fmt.Sprint("event ", i) {
			fmt.Println("line", n, "is", log[n])
		}
	}
	fmt.Println(len(log), "lines,", writes, "writes")
	// Output: 100 lines, 2 writes
}
