package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/identity"
)

func TestQuorum(t *testing.T) {
	for n, q := range map[int]int{3: 2, 5: 3, 7: 4, 31: 16} {
		require.Equal(t, q, quorum(n))
		require.Greater(t, 2*quorum(n), n, "two majorities share a server")
		require.False(t, provenLost(n, n-q))
		require.True(t, provenLost(n, n-q+1))
	}
}

func TestTally(t *testing.T) {
	for _, test := range []struct {
		tally
		want verdict
	}{
		{tally{n: 5}, pending},
		{tally{n: 5, votes: 2}, pending},
		{tally{n: 5, votes: 3}, granted},
		{tally{n: 5, votes: 3, errs: 2}, granted},
		{tally{n: 5, votes: 2, waits: 2}, pending},
		{tally{n: 5, votes: 2, waits: 2, closed: true}, refused},
		{tally{n: 5, votes: 1, waits: 1, closed: true}, pending},
		{tally{n: 5, waits: 3}, refused},
		{tally{n: 5, votes: 2, waits: 1, errs: 2}, refused},
		{tally{n: 5, waits: 2, errs: 1}, refused},
		{tally{n: 5, votes: 2, errs: 3}, unavailable},
		{tally{n: 5, errs: 2}, pending},
		{tally{n: 3, errs: 2}, unavailable},
		{tally{n: 3, votes: 1, errs: 1}, pending},
		{tally{n: 3, votes: 1, errs: 1, waits: 1}, refused},
	} {
		require.Equal(t, test.want, test.judge(), "%+v", test.tally)
	}
}

// A majority lasts as long as the last q of its votes.
func TestValidUntil(t *testing.T) {
	base := time.Now()
	at := func(ms ...int) (all []time.Time) {
		for _, m := range ms {
			all = append(all, base.Add(time.Duration(m)*time.Millisecond))
		}
		return all
	}
	for _, test := range []struct {
		sent []time.Time
		from int // ms; -1: no majority
	}{
		{at(), -1}, {at(1, 2), -1}, {at(1, 2, 3), 1}, {at(5, 1, 9), 1}, {at(1, 5, 9, 7), 5}, {at(1, 1, 9, 9, 9), 9},
	} {
		until, ok := validUntil(5, test.sent, time.Second)
		require.Equal(t, test.from >= 0, ok)
		if ok {
			require.Equal(t, distributed.Validity(at(test.from)[0], time.Second), until)
		}
	}
}

func TestPauses(t *testing.T) {
	for k := range 100 {
		require.LessOrEqual(t, backoff(k), longestBackoff)
		p := splitPause(k, time.Millisecond, time.Second)
		require.GreaterOrEqual(t, p, time.Millisecond, "no tighter than a round trip")
		require.LessOrEqual(t, p, time.Second)
		require.LessOrEqual(t, grace(time.Second, time.Duration(k)*time.Millisecond), tryTimeout(time.Second, time.Duration(k)*time.Millisecond))
	}
	for _, test := range []struct{ ttl, rtt, want time.Duration }{
		{distributed.MinTTL, 1, shortestTry},
		{distributed.MinTTL, 0, distributed.MinTTL / 2},
		{5 * time.Second, time.Millisecond, 5 * time.Second / 6},
		{5 * time.Second, 300 * time.Millisecond, coldTrips * 300 * time.Millisecond},
		{5 * time.Second, time.Minute, 5 * time.Second / 2},
		{5 * time.Second, 0, 5 * time.Second / 2},
		{time.Second, 100 * time.Millisecond, coldTrips * 100 * time.Millisecond},
		{time.Second, time.Minute, longestTry},
		{time.Hour, time.Millisecond, longestTry},
		{time.Hour, time.Minute, connectTimeout},
		{time.Hour, 0, connectTimeout},
	} {
		require.Equal(t, test.want, tryTimeout(test.ttl, test.rtt), "%+v", test)
	}
}

func TestTokens(t *testing.T) {
	named := func(number uint64, process string) string { return tokenOf(identity.NewAttempt(number), process) }
	a, b := named(7, "A"), named(12, "A")
	require.True(t, older(a, b))
	require.False(t, older(b, a))
	require.True(t, older(named(7, "A"), named(7, "B")))
	require.True(t, older("wllock:11:B", b), "of an older version")
	c := named(7, "A")
	require.NotEqual(t, older(a, c), older(c, a), "of a copy of the process")
	for _, foreign := range []string{"", "x", "wllock:x:A:1:i:2", "wllock:s:1", "wllock:rs:" + a, "wllock:1"} {
		_, _, ok := age(foreign)
		require.False(t, ok, foreign)
	}
}

// A vote counts from the question that it follows; a notice about an earlier one changes nothing.
func TestSeats(t *testing.T) {
	now, window := time.Now(), time.Minute
	const ttl = 2 * time.Minute
	var known = millis(ttl)
	sent := func(ms int) time.Time { return now.Add(time.Duration(ms-1000) * time.Millisecond) }
	waits, vote := standing{kind: 'w', mode: "x"}, standing{kind: 'v', longest: known}
	t.Run("the answer gives it", func(t *testing.T) {
		var s seat
		s.ask(sent(1))
		require.False(t, s.counts(now, ttl, 0))
		s.told(vote, now)
		require.True(t, s.counts(now, ttl, 0))
		require.Equal(t, sent(1), s.voted)
	})
	t.Run("a notice gives it", func(t *testing.T) {
		var s seat
		s.ask(sent(1))
		s.told(waits, now)
		require.False(t, s.noticed(message{epoch: 2}, now))
		require.False(t, s.noticed(message{}, now))
		require.True(t, s.noticed(message{epoch: 1, longest: known}, now))
		require.Equal(t, sent(1), s.voted)
	})
	t.Run("a notice overtakes the answer", func(t *testing.T) {
		var s seat
		s.ask(sent(1))
		require.True(t, s.noticed(message{epoch: 1, longest: known}, now))
		require.False(t, s.counts(now, ttl, 0), "the server may be young")
		s.told(waits, now)
		require.True(t, s.counts(now, ttl, 0))
	})
	t.Run("a notice of before the last question", func(t *testing.T) {
		var s seat
		s.ask(sent(1))
		s.told(waits, now)
		s.ask(sent(2))
		s.told(waits, now)
		require.False(t, s.noticed(message{epoch: 1, longest: known}, now))
	})
	t.Run("a vote that is yielded", func(t *testing.T) {
		var s seat
		s.ask(sent(1))
		s.told(vote, now)
		s.yield(sent(2))
		require.False(t, s.votes())
		require.False(t, s.noticed(message{epoch: 1, longest: known}, now))
		s.told(waits, now)
		require.False(t, s.void)
		require.True(t, s.noticed(message{epoch: 2}, now), "and comes back")
	})
	t.Run("a yield without answer", func(t *testing.T) {
		var s seat
		s.ask(sent(1))
		s.told(vote, now)
		s.yield(sent(2))
		s.failed(errLate)
		s.ask(sent(3))
		s.told(vote, now)
		require.False(t, s.counts(now, ttl, 0), "it may be carried out later")
	})
	t.Run("a young server", func(t *testing.T) {
		var s seat
		s.ask(sent(1))
		s.told(standing{kind: 'v', age: time.Second, longest: known}, now)
		const longest = 4 * time.Second
		require.False(t, s.counts(now.Add(2900*time.Millisecond), ttl, longest))
		require.True(t, s.counts(now.Add(3100*time.Millisecond), ttl, longest))
		require.False(t, s.counts(now.Add(3100*time.Millisecond), ttl, 2*longest), "a longer TTL that was heard of since")
	})
	t.Run("a server that was too young to note our TTL", func(t *testing.T) {
		var s seat
		s.ask(sent(1))
		s.told(standing{kind: 'v', age: time.Hour, longest: known - 1}, now)
		require.False(t, s.counts(now, ttl, 0), "others do not know that they would have to wait")
		require.True(t, s.young(now, ttl, 0))
	})
	t.Run("a notice of a server that was restarted", func(t *testing.T) {
		const age, longest = time.Hour, 3 * time.Second
		var s seat
		s.ask(sent(1))
		s.told(standing{kind: 'w', mode: "x", age: age}, now)
		require.True(t, s.noticed(message{epoch: 1, age: time.Millisecond, longest: known}, now))
		require.False(t, s.counts(now, ttl, longest))
		require.True(t, s.counts(now.Add(longest), ttl, longest))
		s.ask(sent(2))
		require.True(t, s.noticed(message{epoch: 2, age: time.Millisecond, longest: known}, now))
		s.told(standing{kind: 'w', mode: "x", age: age}, now)
		require.False(t, s.counts(now, ttl, longest), "the answer is older than the notice")
	})
	t.Run("a vote that the server has lost", func(t *testing.T) {
		var s seat
		s.ask(sent(1))
		s.told(vote, now)
		s.ask(sent(2))
		s.told(waits, now)
		require.False(t, s.votes())
	})
	t.Run("a vote that has expired", func(t *testing.T) {
		var s seat
		s.ask(sent(1))
		s.told(vote, now)
		require.False(t, s.counts(now.Add(window), ttl, 0))
	})
}
