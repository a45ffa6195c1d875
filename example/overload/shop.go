package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/middleware/httpguard"
)

// shop is the server and its measurements.
type shop struct {
	load
	store    store
	counting atomic.Bool // requests that begin now are measured

	mu     sync.Mutex // guards what follows
	holds  times
	took   times
	wasted int
}

func (s *shop) handler(locker *wllock.Locker, batches bool) http.Handler {
	orders := httpguard.New(locker, "product", httpguard.PathValue("id"))(http.HandlerFunc(s.order))
	if batches {
		orders = s.inBatches(locker)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", s.timed(orders))
	mux.HandleFunc("POST /bare", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	return mux
}

// visit is a measured request.
type visit struct{ accepted bool }

type visitKey struct{}

// timed measures around the guard: the time of an accepted request at the server.
func (s *shop) timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.counting.Load() {
			next.ServeHTTP(w, r)
			return
		}
		v, began := new(visit), time.Now()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, v)))
		took := time.Since(began)
		if v.accepted && r.Context().Err() == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.took = append(s.took, took)
		}
	})
}

// order takes its time even if the client has left, as a database would.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	accept(r)
	answer(w, s.sell(r.Context(), r.Context()))
}

// inBatches guards the orders themselves: a batch needs to know each of its requests, which middleware around them does not.
func (s *shop) inBatches(locker *wllock.Locker) http.Handler {
	buy := wllock.WrapBatch(locker, "product", func(product string) string { return product },
		func(ctx context.Context, batch []*wllock.Item[string, struct{}]) error {
			clients := make([]context.Context, len(batch))
			for i, item := range batch {
				clients[i] = item.Context()
			}
			return s.sell(ctx, clients...)
		})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := buy(r.Context(), r.PathValue("id"))
		if err == nil {
			accept(r)
		}
		answer(w, err)
	})
}

// sell is one hold, which writes the orders of these clients under its fence.
func (s *shop) sell(ctx context.Context, clients ...context.Context) error {
	counts, began := s.counting.Load(), time.Now()
	held, _ := wllock.HeldFrom(ctx)
	s.pause(s.hold)
	err := s.store.write(held.Fence(), len(clients))
	if !counts {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = append(s.holds, time.Since(began))
	for _, client := range clients {
		if client.Err() != nil {
			s.wasted++
		}
	}
	return err
}

// accept marks a request that was served.
func accept(r *http.Request) {
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		v.accepted = true
	}
}

func answer(w http.ResponseWriter, err error) {
	switch {
	case err == nil:
		w.WriteHeader(http.StatusCreated)
	case errors.Is(err, wllock.ErrQueueFull):
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (s *shop) into(p *point) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.holds, p.server, p.wasted = s.holds, s.took, s.wasted
}
