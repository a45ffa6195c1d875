package redlock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/conn"
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

// A repeated question counts from its own sending, so what it is answered with lasts as long from then on: a vote as well as a gate. What the
// server publishes about the gate follows the repeat.
func TestARepeatedEnterExtendsWhatItCounts(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	b := s.open()
	one := s.all[0]
	for _, mode := range []string{"x", "s", "p2"} {
		t.Run(mode, func(t *testing.T) {
			a := newAttempt(b, request("k"+mode, "a"))
			lasts := []any{"PTTL", a.key()}
			if mode == "p2" {
				lasts[1] = prefix + "a:" + a.key()
			}
			first := strings.Fields(says(t, b.nodes[0], a.call(enterScript, mode, 1, a.asked, 0, "")))[1]
			require.Contains(t, []string{"vote", "permit"}, first)
			one.Do("PEXPIRE", lasts[1], 5000) // as if so much of W had passed
			if mode == "s" {
				one.Do("ZADD", prefix+"r:"+a.token, time.Now().Add(5*time.Second).UnixMilli(), a.token)
			}
			require.Equal(t, first, strings.Fields(says(t, b.nodes[0], a.call(enterScript, mode, 2, a.asked, 0, "")))[1])
			require.Greater(t, one.Do(lasts...), int64(5000))
			if mode == "p2" {
				require.Equal(t, "2", strings.Fields(one.Do("HGET", prefix+"w:"+a.key(), a.token).(string))[3])
			}
			says(t, b.nodes[0], a.call(leaveScript, "x", 0))
		})
	}
}

// A place that becomes the head of a free lock while its question is repeated gets the vote, and is in no queue any more.
func TestARepeatedEnterLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	b := s.open()
	one := s.all[0]
	a := newAttempt(b, request("k", "a"))
	one.Do("SET", "k", "foreign")
	enter := a.call(enterScript, "x", 1, a.asked, 0, "")
	require.Contains(t, says(t, b.nodes[0], enter), "wait")
	one.Do("DEL", "k")
	require.Contains(t, says(t, b.nodes[0], enter), "vote")
	require.EqualValues(t, 0, one.Do("ZCARD", prefix+"q:k"))
}
