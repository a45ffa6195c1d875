package httpguard_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// ends are the ways in which a lock ends under its holder.
var ends = map[string]struct {
	opts  []wllock.CallOption
	end   func(l *wllock.Locker, faults *wllocktest.Faults)
	cause error
	kind  string
}{
	"lost": {end: func(_ *wllock.Locker, faults *wllocktest.Faults) { faults.Lose("product", secret) }, cause: wllock.ErrLeaseLost, kind: "lease-lost"},
	"held for too long": {opts: []wllock.CallOption{wllock.WithLockTimeMax(50 * time.Millisecond)},
		end: func(*wllock.Locker, *wllocktest.Faults) {}, cause: wllock.ErrLockTimeMax, kind: "lease-lost"},
	"closed": {end: func(l *wllock.Locker, _ *wllocktest.Faults) { closeUnder(l) }, cause: wllock.ErrClosed, kind: "shutting-down"},
}

// ending is a Locker whose lock ends for that cause, before its lease.
func ending(t testing.TB, cause error) (*wllock.Locker, *wllocktest.Faults) {
	ttl := wllock.DefaultLeaseTTL
	if cause == wllock.ErrLeaseLost {
		ttl = 100 * time.Millisecond
	}
	return wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(ttl))
}

// The outer lock ends while the request waits for the inner one: the lock is gone, not the client.
func TestOuterLockEndsWhileTheInnerIsWaitedFor(t *testing.T) {
	for name, test := range ends {
		t.Run(name, func(t *testing.T) {
			outer, faults := ending(t, test.cause)
			inner := taken(t)
			s := serve(t, outer, byPath, guarded(inner, never(t)).ServeHTTP, httpguard.WithCallOptions(test.opts...))
			var all sync.WaitGroup
			all.Go(func() {
				for end := time.Now().Add(10 * time.Second); inner.Stats().Total.Waiting == 0 && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
				test.end(outer, faults)
			})
			get(t, s).isProblem(t, http.StatusServiceUnavailable, test.kind, false)
			all.Wait()
		})
	}
}

// The outer lock ends while the handler has the inner one and writes nothing: the outer guard answers.
func TestOuterLockEndsUnderTheHandler(t *testing.T) {
	for name, test := range ends {
		t.Run(name, func(t *testing.T) {
			outer, faults := ending(t, test.cause)
			inner := wllocktest.New(t)
			s := serve(t, outer, byPath, guarded(inner, func(_ http.ResponseWriter, r *http.Request) {
				test.end(outer, faults)
				<-r.Context().Done()
			}).ServeHTTP, httpguard.WithCallOptions(test.opts...))
			get(t, s).isProblem(t, http.StatusServiceUnavailable, test.kind, false)
			isFree(t, inner)
		})
	}
}

// If the request itself is canceled, that is the answer, although an outer lock is held.
func TestRequestCanceledUnderTheOuterLock(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "inner", secret)
	guarded := httpguard.New(l, "inner", byPath)(never(t))
	mux := http.NewServeMux()
	mux.HandleFunc("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		httpguard.New(l, "outer", byPath)(guarded).ServeHTTP(w, r.WithContext(ctx))
	})
	get(t, start(t, false, mux)).isProblem(t, http.StatusServiceUnavailable, "canceled", true)
}
