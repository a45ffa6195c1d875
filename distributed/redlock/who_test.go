package redlock

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/identity"
)

func TestTokensNameTheirProcess(t *testing.T) {
	for _, name := range []string{"web-7f9c9d8b6-x2abz-k3j5h7q2m4", "db_1.example.org-Zp", "Z", "ZZp-Zm"} {
		token := tokenOf(identity.Attempt{Number: 7, Random: 12}, processOf(name, "ABCDEFZP2345"))
		assert.Equal(t, name, nameOf(token))
		assert.Regexp(t, `^wllock:700000000000000000012:[A-Za-z0-9]+$`, token)
	}
	for _, other := range []string{"wllock:7:ABCDEFZHI234", "wllock:7:Z", "wllock:7:", "unique", ""} {
		assert.Empty(t, nameOf(other), other)
	}
}

// Whoever is refused, or waits, learns the process that has the lock.
func TestRefusedLearnsTheProcess(t *testing.T) {
	s, x := three(t, WithInstance("web-1"))
	y := s.open(WithInstance("web-2"))
	l := leaseOf(t, x, request("k", "a"))
	holder := ""
	for begin := time.Now(); holder == "" && time.Since(begin) < patience; { // a server that has not answered names nobody
		err := refusal(t, y, request("k", "b", noWait))
		require.ErrorIs(t, err, distributed.ErrHeld)
		named, ok := errors.AsType[*distributed.HeldError](err)
		require.True(t, ok)
		holder = named.Holder
	}
	require.Equal(t, identity.Process("web-1"), holder)
	p, _ := placeOf(t, y, request("k", "b"))
	require.Equal(t, identity.Process("web-1"), p.Holder())
	release(t, l)
	release(t, await(t, p))
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
