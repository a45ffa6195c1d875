package judge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// longest is what a schedule may take; those that end take some minutes.
const longest = time.Hour

// Play plays so many schedules, or with WLLOCK_LONG=1 so many more, each in a bubble. play gets the seed of its schedule.
func Play(t *testing.T, schedules, long int, play func(w *World, seed uint64)) {
	t.Helper()
	counts := map[string]int{}
	all := testseed.Each(t, testscope.Scale(schedules, long), func(seed uint64) {
		w := &World{inside: map[string][]*hold{}, fences: map[string]uint64{}, counts: counts}
		synctest.Test(t, func(*testing.T) {
			endless := time.AfterFunc(longest, func() {
				panic(fmt.Sprintf("WLLOCK_SEED=%d WLLOCK_PLAYS=1: no end after %v of the schedule's time", seed, longest))
			})
			defer endless.Stop()
			play(w, seed)
		})
		if len(w.found) > 0 {
			if broken() {
				panic(fmt.Sprintf("WLLOCK_SEED=%d: %v", seed, w.found)) // t.Fatal would wait for the tests beside this one
			}
			t.Error(w.found)
		}
	})
	t.Log(counts)
	for _, what := range []string{"entries", "errors", "lost", "left", "unread", "places lost", "abandoned", "closed"} {
		if all && counts[what] == 0 {
			t.Errorf("none of %q", what)
		}
	}
}

// Player is a Process that takes part in a schedule.
type Player interface {
	Process
	// Calm ends the faults on its way to the service.
	Calm()
	// Idle reports that nothing is under way.
	Idle() bool
	Close() error
}

// Schedule has two processes with three users each take their turns, and disturbs them. One process may be closed in the middle. When the
// faults end, each user gets the lock, and in the end nothing is left. open gets the number of a process.
func Schedule[P Player](w *World, seed uint64, ttl time.Duration, open func(n uint64) P, disturb func(rnd *rand.Rand, all []P)) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	var users sync.WaitGroup
	var all []P
	for i := range 2 {
		p := open(uint64(i + 1))
		all = append(all, p)
		for j := range 3 {
			least := ttl - time.Duration(j)*ttl/8 // each has a session of its own, or shares one
			u := w.NewUser(p, fmt.Sprint(i, "-", j), least, rand.New(rand.NewPCG(seed, uint64(10*i+j+100))))
			users.Go(func() { u.Run(6) })
		}
	}
	disturb(rnd, all)
	if rnd.IntN(3) == 0 {
		time.Sleep(time.Duration(rnd.Int64N(int64(10 * ttl))))
		_ = all[0].Close()
		w.Count("closed")
	}
	users.Wait()
	for _, p := range all {
		p.Calm()
	}
	time.Sleep(11 * ttl) // abandoned leases expire; answers have come
	last := open(50)
	last.Calm()
	for _, key := range []string{"k0", "k1"} {
		l, _, err := last.Enter(context.Background(), distributed.Request{Key: key, Instance: "last", TTL: ttl})
		if err != nil || l == nil {
			w.Failf("%s is not free in the end: %v", key, err)
			continue
		}
		_ = l.Release(context.Background())
	}
	synctest.Wait() // the goroutines whose answers have come know them
	for _, p := range append(all, last) {
		if !p.Closed() && !p.Idle() {
			w.Failf("a Backend is not idle in the end")
		}
		_ = p.Close()
	}
}
