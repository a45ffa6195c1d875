package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/testlocker"
)

// says asks one server, and returns its answer.
func says(t *testing.T, n *node, c conn.Call) string {
	t.Helper()
	answered := make(chan *ask, 1)
	n.send(&ask{Call: c, lane: lanes, limit: patience, done: func(k *ask) { answered <- k }})
	k := <-answered
	require.NoError(t, k.Err)
	return k.Reply
}

// A repeated question counts from its own sending, so what it is answered with lasts as long from then on.
func TestARepeatedEnterExtendsWhatItCounts(t *testing.T) {
	s, b := three(t)
	one := s.all[0]
	for _, mode := range []string{"x", "s"} {
		t.Run(mode, func(t *testing.T) {
			a := newBid(b, request("k"+mode, "a"))
			require.Contains(t, says(t, b.nodes[0], a.call(enterScript, mode, 1, a.asked, 0, "")), "vote")
			one.Do("PEXPIRE", a.key(), 5000) // as if so much of W had passed
			if mode == "s" {
				one.Do("ZADD", prefixOf("")+"r:"+a.token, time.Now().Add(5*time.Second).UnixMilli(), a.token)
			}
			require.Contains(t, says(t, b.nodes[0], a.call(enterScript, mode, 2, a.asked, 0, "")), "vote")
			require.Greater(t, one.Do("PTTL", a.key()), int64(5000))
			says(t, b.nodes[0], a.call(leaveScript, "x", 0))
		})
	}
}

// A place that becomes the head of a free lock while its question is repeated gets the vote, and is in no queue any more.
func TestARepeatedEnterLeavesTheQueue(t *testing.T) {
	s, b := three(t)
	one := s.all[0]
	a := newBid(b, request("k", "a"))
	one.Do("SET", "k", "foreign")
	enter := a.call(enterScript, "x", 1, a.asked, 0, "")
	require.Contains(t, says(t, b.nodes[0], enter), "wait")
	one.Do("DEL", "k")
	require.Contains(t, says(t, b.nodes[0], enter), "vote")
	require.EqualValues(t, 0, one.Do("ZCARD", helper("q:", "k")))
}

// breaking is what breaks the lease with this token at one server, and what is recorded of it.
func breaking(t *testing.T, b *Backend, key, token string) (conn.Call, distributed.Breaking) {
	t.Helper()
	record := distributed.Breaking{At: time.Now(), By: "me", Reason: "it is stuck", Fence: uint64(time.Now().Add(time.Minute).UnixNano())}
	c, err := b.breakCall(distributed.Inspection{Key: key, State: token}, &record)
	require.NoError(t, err)
	return c, record
}

// listening waits until the first server knows that the backend listens: else nothing is yielded to it.
func (s *servers) listening(b *Backend) {
	b.space("")
	b.listen()
	require.Eventually(s.t, func() bool {
		got, _ := s.all[0].Do("PUBSUB", "NUMSUB", prefixOf("")+b.process).([]any)
		return len(got) == 2 && got[1] == int64(1)
	}, patience, time.Millisecond)
}

// A lease that an operator has ended gets no vote of a server that has answered the Break, neither from a waiter, nor by a question that
// was sent before and comes late; wherever the votes were.
func TestABrokenLeaseGetsNoVoteBack(t *testing.T) {
	s, b := three(t, WithQuorumFences())
	s.listening(b)
	one := b.nodes[0]
	for name, held := range map[string]bool{"broken": true, "other": false} {
		t.Run(name, func(t *testing.T) {
			req := request("k"+name, "a")
			holder, waiter := newBid(b, req), known(b, req) // else what is announced to it is given back
			first, second := holder, waiter
			if !held {
				first, second = waiter, holder
			}
			owner := func() any { return s.all[0].Do("GET", req.Key) }
			require.Contains(t, says(t, one, first.call(enterScript, "x", 1, first.asked, 0, "")), "vote")
			require.Contains(t, says(t, one, second.call(enterScript, "x", 1, second.asked, 0, "")), "wait")
			c, record := breaking(t, b, req.Key, holder.token)
			require.Equal(t, name, says(t, one, c))
			require.Equal(t, fence19(record.Fence), s.all[0].Do("GET", fenceKey(req.Key)), "the next holder is above it, here too")
			says(t, one, waiter.call(yieldScript, "x", 2, waiter.asked, holder.token, "x", 60_000))
			require.NotEqual(t, holder.token, owner(), "yielded")
			says(t, one, waiter.call(leaveScript, "x", 0))
			require.Equal(t, "none", says(t, one, holder.renewCall("x", 1)))
			for _, late := range []conn.Call{
				holder.call(enterScript, "x", 1, holder.asked, 0, ""), holder.call(enterScript, "s", 1, holder.asked, 0, waiter.token),
				holder.call(heartbeatScript, "x", 1, holder.asked),
			} {
				require.Contains(t, says(t, one, late), " b -")
			}
			require.Nil(t, owner())
			require.Nil(t, s.all[0].Do("ZSCORE", helper("q:", req.Key), holder.token))

			other, _ := breaking(t, b, req.Key, "wllock:1:OTHER")
			require.Equal(t, "other", says(t, one, other))
			require.Contains(t, says(t, one, holder.call(enterScript, "x", 1, holder.asked, 0, "")), " b -", "after another Break, too")
			require.Equal(t, held, readBroken(s.all[0].Do("GET", brokenKey(req.Key)).(string)) != nil, "the record of one that ended a lease is kept")
		})
	}
}

// An attempt that has had votes of a majority, and no lease yet, may be found and broken: it waits on with another token.
func TestABrokenWaiterGoesOn(t *testing.T) {
	t.Parallel()
	s := startFor(t, 3, time.Second)
	b := s.open()
	s.do("SET", "k", "foreign", "PX", 600_000)
	p, a := placeOf(t, b, request("k", "a", lasting(time.Second)))
	broken := a.token
	s.do("SET", brokenKey("k"), " "+broken+" \n")
	s.do("DEL", "k")
	l := await(t, p)
	require.NotEqual(t, broken, bidOf(l).token)
	release(t, l)
}

// What a version with another format keeps is no lock of a foreigner: it is refused by name.
func TestOtherFormatsAreRefused(t *testing.T) {
	s, b := three(t)
	testlocker.RefusesOtherFormats(t, testlocker.Asker{T: t, B: b, TTL: time.Second}, func(key string) {
		s.do("SET", key, "wllock9:1:P", "PX", 600_000)
	})
	_, err := b.Inspect(t.Context(), "other-0")
	require.ErrorContains(t, err, "format 9")
}
