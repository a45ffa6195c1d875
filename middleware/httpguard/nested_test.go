package httpguard_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/httpguard"
	"github.com/wllock/wllock/wllocktest"
)

// The outer lock ends while the request waits for the inner one: the lock is gone, not the client.
func TestOuterLockEndsWhileTheInnerIsWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		opts []wllock.CallOption
		end  func(l *wllock.Locker, faults *wllocktest.Faults)
		kind string
	}{
		"lost":              {end: func(_ *wllock.Locker, faults *wllocktest.Faults) { faults.Lose("product", secret) }, kind: "lease-lost"},
		"held for too long": {opts: []wllock.CallOption{wllock.WithLockTimeMax(50 * time.Millisecond)}, kind: "lease-lost"},
		"closed": {end: func(l *wllock.Locker, _ *wllocktest.Faults) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = l.Close(ctx)
		}, kind: "shutting-down"},
	} {
		t.Run(name, func(t *testing.T) {
			outer, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(100*time.Millisecond))
			inner := wllocktest.New(t)
			wllocktest.Hold(t, inner, "product", secret)
			guarded := httpguard.New(inner, "product", byPath)(never(t))
			s := serve(t, outer, byPath, guarded.ServeHTTP, httpguard.WithCallOptions(test.opts...))
			done := make(chan struct{})
			go func() {
				defer close(done)
				for inner.Stats().Total.Waiting == 0 {
					time.Sleep(time.Millisecond)
				}
				if test.end != nil {
					test.end(outer, faults)
				}
			}()
			get(t, s).isProblem(t, http.StatusServiceUnavailable, test.kind, false)
			<-done
		})
	}
}

// The outer lock ends while the handler has the inner one and writes nothing: the outer guard answers.
func TestOuterLockEndsUnderTheHandler(t *testing.T) {
	for name, opts := range map[string][]wllock.CallOption{"lost": nil, "held for too long": {wllock.WithLockTimeMax(50 * time.Millisecond)}} {
		t.Run(name, func(t *testing.T) {
			outer, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(100*time.Millisecond))
			inner := wllocktest.New(t)
			guarded := httpguard.New(inner, "product", byPath)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if name == "lost" {
					faults.Lose("product", secret)
				}
				<-r.Context().Done()
			}))
			s := serve(t, outer, byPath, guarded.ServeHTTP, httpguard.WithCallOptions(opts...))
			get(t, s).isProblem(t, http.StatusServiceUnavailable, "lease-lost", false)
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
	s := insecure(t, mux)
	get(t, s).isProblem(t, http.StatusServiceUnavailable, "canceled", true)
}
