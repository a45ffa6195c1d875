package redislock

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// resend has copies of requests come later: those of the scripts that keep says.
func resend(b *Backend, keep func(*conn.Call) bool) (again func() []string) {
	var kept []*conn.Call
	direct := b.s.tr
	aroundCalls(b, func(ctx context.Context, next conn.Transport, calls []*conn.Call) {
		for _, c := range calls {
			if keep(c) {
				kept = append(kept, c.Alone()...)
			}
		}
		next.Do(ctx, calls...)
	})
	return func() (replies []string) {
		for _, c := range kept {
			c := &conn.Call{Script: c.Script, Args: c.Args}
			direct.Do(context.Background(), c)
			replies = append(replies, c.Reply)
		}
		return replies
	}
}

// What comes late or again changes nothing: the enter, renewal and release of the lease that was detached, and the transfers themselves.
func TestLateRequestsOfADetachedLease(t *testing.T) { // rule R20
	t.Parallel()
	s, b := openNew(t)
	u, id := newUser(t, b).lasting(time.Minute), rand.Text()
	again := resend(b, func(c *conn.Call) bool { return c.Script == enterScript || c.Script == transferScript })
	l := u.lease(key(t))
	require.NoError(t, b.Detach(t.Context(), l, id, time.Hour))
	value := s.Do("GET", l.a.Key)
	require.Equal(t, "old", again()[0], "its enter")
	b.s.renewBatch(t.Context(), []*attempt{l.a})
	half{b}.Drop(t.Context(), []*attempt{l.a})
	require.Equal(t, value, s.Do("GET", l.a.Key))
	require.Greater(t, s.Do("PTTL", l.a.Key), (time.Hour - time.Minute).Milliseconds())

	adopted, err := b.Adopt(t.Context(), distributed.Request{Key: l.a.Key, Instance: "adopter", TTL: time.Minute}, id)
	require.NoError(t, err)
	value = s.Do("GET", l.a.Key)
	b.s.renewBatch(t.Context(), []*attempt{attemptBehind(adopted)})
	replies := again()
	require.Equal(t, "lost", replies[1], "the detach")
	first := attemptBehind(adopted).Fences.First
	require.Equal(t, fmt.Sprintf("lease %d 1000 0", first), replies[2], "the adoption is answered again")
	require.Equal(t, value, s.Do("GET", l.a.Key))
	require.Greater(t, s.Do("PTTL", l.a.Key), int64(59_000), "it shortens nothing")
	require.NoError(t, adopted.Release(t.Context()))
	require.Equal(t, []string{"old", "lost", "lost"}, again())
	require.Nil(t, s.Do("GET", l.a.Key))
}

// An adopter that has given up gets nothing by a transfer that comes after its leave.
func TestAnAdoptionThatComesAfterItsLeave(t *testing.T) { // rule R20
	t.Parallel()
	s, b := openNew(t)
	u, id := newUser(t, b).lasting(time.Minute), rand.Text()
	l := u.lease(key(t))
	require.NoError(t, b.Detach(t.Context(), l, id, time.Hour))
	value := s.Do("GET", l.a.Key)
	var late *conn.Call
	left, direct := make(chan struct{}), b.s.tr
	aroundCalls(b, func(ctx context.Context, next conn.Transport, calls []*conn.Call) {
		switch c := calls[0]; c.Script {
		case transferScript:
			late, c.Err = &conn.Call{Script: c.Script, Args: c.Args}, context.DeadlineExceeded
			return
		case leaveScript:
			defer close(left)
		}
		next.Do(ctx, calls...)
	})
	_, err := b.Adopt(within(t, 200*time.Millisecond), distributed.Request{Key: l.a.Key, Instance: "adopter", TTL: time.Minute}, id)
	require.Error(t, err)
	<-left
	direct.Do(t.Context(), late)
	require.Equal(t, "lost", late.Reply)
	require.Equal(t, value, s.Do("GET", l.a.Key), "the next adopter finds it")
}
