package etcdlock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
)

// The answer to each exchange is lost once, with its connection: each has one effect.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	long := lasting(6 * ttl) // a lost look is repeated by the next heartbeat
	for name, exchange := range map[string]func(t *testing.T, ask, other asker, lose func(part string)){
		"enter": func(t *testing.T, ask, _ asker, lose func(string)) {
			lose("x/" + tagOf("a"))
			release(t, ask.lease("a", long))
		},
		"enter of a reader": func(t *testing.T, ask, _ asker, lose func(string)) {
			lose("s/" + tagOf("a"))
			release(t, ask.lease("a", long, shared))
		},
		"enter with prev": func(t *testing.T, ask, _ asker, lose func(string)) {
			prev := ask.lease("a", long)
			before := fence(t, prev)
			lose("x/" + tagOf("a"))
			l := ask.lease("a", long, func(r *distributed.Request) { r.Prev = prev })
			require.Greater(t, fence(t, l), before)
			require.NoError(t, prev.Release(t.Context()))
			release(t, l)
		},
		"enter with prev of a lease whose own enter was lost": func(t *testing.T, ask, _ asker, lose func(string)) {
			lose("x/" + tagOf("a"))
			prev := ask.lease("a", long)
			lose("x/" + tagOf("a"))
			release(t, ask.lease("a", long, func(r *distributed.Request) { r.Prev = prev }))
		},
		"enter that is refused": func(t *testing.T, ask, other asker, lose func(string)) {
			l := other.lease("b", long)
			lose("x/" + tagOf("a"))
			_, _, err := ask.try("a", long, func(r *distributed.Request) { r.NoWait = true })
			require.ErrorIs(t, err, distributed.ErrHeld)
			release(t, l)
		},
		"enter without waiting": func(t *testing.T, ask, _ asker, lose func(string)) {
			lose("x/" + tagOf("a"))
			release(t, ask.lease("a", long, func(r *distributed.Request) { r.NoWait = true }))
		},
		"enter of a waiter, and its look": func(t *testing.T, ask, other asker, lose func(string)) {
			l := other.lease("b", long)
			lose("x/" + tagOf("a"))
			p := ask.place("a", long)
			lose("x/" + tagOf("a"))
			release(t, l)
			release(t, granted(t, p))
		},
		"release": func(t *testing.T, ask, _ asker, lose func(string)) {
			l := ask.lease("a", long)
			lose("x/" + tagOf("a"))
			release(t, l) // nil: the key is gone, by the first try
		},
		"leave": func(t *testing.T, ask, other asker, lose func(string)) {
			l := other.lease("b", long)
			p := ask.place("a", long)
			lose("x/" + tagOf("a"))
			require.NoError(t, p.Leave(t.Context()))
			release(t, l)
		},
		"refill and downgrade": func(t *testing.T, ask, _ asker, lose func(string)) {
			l := ask.lease("a", long)
			before := fence(t, l)
			lose(writeName)
			require.Error(t, l.Refill(t.Context()))
			require.Eventually(t, func() bool { return l.Refill(t.Context()) == nil }, patience, time.Millisecond)
			after := fence(t, l)
			require.Greater(t, after, before)
			lose("x/" + tagOf("a"))
			d := l.(distributed.Downgrader)
			require.Error(t, d.Downgrade(t.Context()))
			require.Eventually(t, func() bool { return d.Downgrade(t.Context()) == nil }, patience, time.Millisecond)
			require.Greater(t, fence(t, l), after)
			release(t, l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, second, proxy := cutOff(t)
			n := 0
			exchange(t, asker{t, b, "k"}, asker{t, second, "k"}, func(part string) {
				release(t, asker{t, b, "warm"}.lease("warm", long)) // the session is there
				require.Equal(t, n, proxy.Swallowed(), "the answer was not lost")
				n++
				proxy.LoseReply(part)
			})
			require.Equal(t, n, proxy.Swallowed(), "the answer was not lost")
			require.Eventually(t, func() bool { return count(t, plainClient(t, etcdtest.Shared(t).Addr), b.dirOf("k")) == 0 },
				patience, 10*time.Millisecond, "something has stayed")
			release(t, asker{t, second, "k"}.lease("b"))
		})
	}
}

// etcd may commit a create long after its client has given up, or after a repeat was carried out and its key deleted again. By
// then the guard has changed, and nothing happens.
func TestACreateThatComesLate(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker{t, b, "k"}
	release(t, ask.lease("warm", lasting(long)))
	s := b.sessions.all[0]
	for _, givenUp := range []bool{true, false} {
		a := b.newAttempt(s, distributed.Request{Key: "k", Instance: "late", TTL: long})
		require.True(t, b.add(a))
		late := a.createRequest("", 0)
		a.unsure() // it was sent, and not answered
		if givenUp {
			a.discard()
		} else {
			l, _, err := a.enter(t.Context(), nil)
			require.NoError(t, err)
			release(t, l)
		}
		<-s.dead.rest()
		got, err := s.txn(t.Context(), "late", late)
		require.NoError(t, err)
		require.False(t, got.Succeeded)
		release(t, ask.lease("b", lasting(long))) // which begins with the new guard
	}
}

// The key of a waiter is deleted by somebody else while a try of its create may still come: that leaves no key that nobody knows.
func TestACreateThatComesLateForAPlaceThatWasLost(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker{t, b, "k"}
	l := ask.lease("a", lasting(long))
	p := ask.place("b", lasting(long)).(place)
	late := p.a.createRequest("", 0)
	p.a.unsure()
	c := plainClient(t, etcdtest.Shared(t).Addr)
	_, err := c.Delete(t.Context(), p.a.name)
	require.NoError(t, err)
	p.a.poke()
	require.Nil(t, granted(t, p))
	<-p.a.s.dead.rest()
	got, err := p.a.s.txn(t.Context(), "late", late)
	require.NoError(t, err)
	require.False(t, got.Succeeded)
	release(t, l)
	release(t, ask.lease("c", lasting(long)))
}

// An Enter with prev is answered at its second try. The first one may come after somebody has deleted the new key: it deletes prev's
// name, so no later request has that.
func TestALateDeletionOfPrevMeetsNoOtherRequest(t *testing.T) {
	t.Parallel()
	b, _, proxy := cutOff(t)
	ask := asker{t, b, "k"}
	prev := ask.lease("a", lasting(long))
	name := prev.(*lease).a.name
	proxy.LoseReply("x/" + tagOf("a"))
	l := ask.lease("a", lasting(long), func(r *distributed.Request) { r.Prev = prev })
	require.Equal(t, 1, proxy.Swallowed())
	next := ask.place("a", lasting(long))
	require.NotEqual(t, name, next.(place).a.name)
	release(t, l)
	release(t, granted(t, next))
}

// Creates that are under way when another's guard is written find it changed, and are repeated.
func TestAGuardThatChangesUnderway(t *testing.T) {
	t.Parallel()
	b := onShared(t)
	ask := asker{t, b, "k"}
	release(t, ask.lease("warm", lasting(long)))
	s := b.sessions.all[0]
	_, err := s.txn(t.Context(), "guard", &pb.TxnRequest{Success: []*pb.RequestOp{opPut(s.guardKey(), "", s.lease())}})
	require.NoError(t, err)
	l := ask.lease("a", lasting(long), func(r *distributed.Request) { r.NoWait = true })
	release(t, ask.lease("a", lasting(long), func(r *distributed.Request) { r.Prev = l }))
}

// An Enter that ends while its request is under way gives prev up. Neither key stays.
func TestAnEnterThatEndsEarlyGivesUpPrev(t *testing.T) {
	t.Parallel()
	b, other, proxy := cutOff(t)
	ask := asker{t, b, "k"}
	l := ask.lease("a", lasting(long))
	proxy.Stall(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := b.Enter(ctx, distributed.Request{Key: "k", Instance: "a", TTL: long, Prev: l})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	proxy.Stall(false)
	next, p := asker{t, other, "k"}.enter("b", lasting(long))
	if p != nil {
		next = granted(t, p)
	}
	require.NotNil(t, next)
	release(t, next)
}
