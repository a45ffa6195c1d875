package main

import (
	"context"
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
	counting atomic.Bool // requests that begin now are measured

	mu     sync.Mutex // guards what follows
	holds  times
	took   times
	wasted int
}

func (s *shop) handler(locker *wllock.Locker) http.Handler {
	guard := httpguard.New(locker, "product", httpguard.PathValue("id"))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", s.timed(guard(http.HandlerFunc(s.order))))
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
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		v.accepted = true
	}
	counts, began := s.counting.Load(), time.Now()
	s.pause(s.hold)
	w.WriteHeader(http.StatusCreated)
	if !counts {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = append(s.holds, time.Since(began))
	if r.Context().Err() != nil {
		s.wasted++
	}
}

func (s *shop) into(p *point) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.holds, p.server, p.wasted = s.holds, s.took, s.wasted
}
