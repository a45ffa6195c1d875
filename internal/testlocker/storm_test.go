package testlocker

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testseed"
)

// wrong changes requests before they are made.
type wrong struct {
	distributed.Backend
	change func(*distributed.Request)
}

func (w wrong) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	w.change(&req)
	return w.Backend.Enter(ctx, req)
}

// TestStorm: mistakes of a backend are found, and nothing in one that makes none.
func TestStorm(t *testing.T) {
	for name, change := range map[string]func(*distributed.Request){
		"":                         func(*distributed.Request) {},
		"a lock for each instance": func(r *distributed.Request) { r.Key += r.Instance },
		"writers are readers":      func(r *distributed.Request) { r.Mode = distributed.Shared },
		"a permit too many": func(r *distributed.Request) {
			if r.Limit > 0 {
				r.Limit++
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memlock.New()
				defer b.Close()
				s := StormOver(t, 6, TTL, nil, func(string) distributed.Backend { return wrong{b, change} })
				if w := s.play(t.Context(), testseed.Seed(t)); (len(w.wrong) > 0) != (name != "") || !w.hasSeenAll() {
					t.Errorf("wrong: %q", w.wrong)
				}
			})
		})
	}
}
