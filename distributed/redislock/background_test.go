package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// moving refuses to release some keys, like a node whose slot is moving to another.
type moving struct {
	conn.Transport
	keys string // what they begin with
}

func (m moving) Do(ctx context.Context, calls ...*conn.Call) {
	m.Transport.Do(ctx, calls...)
	for _, c := range calls {
		if c.Script == leaveScript && strings.HasPrefix(c.Key(), m.keys) {
			c.Reply, c.Err = "", errors.New("TRYAGAIN")
		}
	}
}

// TestFailingTaskKeepsNoWorker: tasks once waited behind a few failing ones until the leases of these had expired.
func TestFailingTaskKeepsNoWorker(t *testing.T) {
	testscope.Long(t, "waits for leases to end")
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	swapTransport(b, func(tr conn.Transport) conn.Transport { return moving{tr, key(t) + "stuck"} })
	u := newUser(t, b).lasting(5 * time.Second)
	well := u.lease(key(t))
	for i := range 2 * maxWorkers {
		u.lease(fmt.Sprint(key(t), "stuck", i)).StartRelease()
		time.Sleep(5 * time.Millisecond) // not all in one exchange
	}
	start := time.Now()
	well.StartRelease()
	require.Eventually(t, func() bool { return s.Do("EXISTS", key(t)) == int64(0) }, patience, time.Millisecond)
	inTime(t, "released", time.Since(start), 0)
}

// TestReleaseRefusedForAMomentIsTriedAgain: a missing right, or a password that comes a little later than it is needed, once
// cost the next waiter the rest of the lease.
func TestReleaseRefusedForAMomentIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(t *testing.T, l *lease, refused, allowed func()){
		"in the background": func(_ *testing.T, l *lease, refused, allowed func()) {
			refused()
			l.StartRelease()
			time.AfterFunc(300*time.Millisecond, allowed)
		},
		"by a caller": func(t *testing.T, l *lease, refused, allowed func()) {
			refused()
			require.ErrorIs(t, l.Release(t.Context()), distributed.ErrRefused)
			time.AfterFunc(300*time.Millisecond, allowed)
		},
		"of a grant that nobody wants": func(t *testing.T, l *lease, refused, allowed func()) {
			refused()
			l.a.Wire.node.b.sub.giveBack(message{attempt: l.a.Wire.id, instance: l.a.Instance, key: l.a.Key})
			time.AfterFunc(300*time.Millisecond, allowed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			l := newUser(t, asUser(t, s)).lasting(time.Minute).lease("shop:product:1")
			p := newUser(t, open(t, s.Addr)).lasting(time.Minute).place("shop:product:1")
			start := make(chan time.Time, 1)
			f(t, l, func() { s.Do("ACL", "SETUSER", "shop", "-evalsha") }, func() {
				start <- time.Now()
				s.Do("ACL", "SETUSER", "shop", "+evalsha")
			})
			next := granted(t, p)
			inTime(t, "handed over", time.Since(<-start), longestPause)
			release(t, next)
		})
	}
}
