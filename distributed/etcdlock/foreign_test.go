package etcdlock

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/parts"
	"github.com/wllock/wllock/internal/testlocker"
)

// Keys of somebody else below the prefix of a lock, older and younger than its requests, are none: nobody waits for them, and a holder
// sees who waits behind them.
func TestKeysOfOthersAreNoRequests(t *testing.T) {
	t.Parallel()
	server, prefix := etcdtest.Shared(t), newPrefix()
	b, other := open(t, server.Addr, prefix), open(t, server.Addr, prefix)
	c := plainClient(t, server.Addr)
	put := func(names ...string) {
		for _, name := range names {
			_, err := c.Put(t.Context(), prefix+"/k/"+name, "somebody else's")
			require.NoError(t, err)
		}
	}
	noWait := func(r *distributed.Request) { r.NoWait = true }
	put("note", "x/note", "s/note")
	for name, kind := range map[string][]func(*distributed.Request){
		"exclusive": {lasting(long)}, "reader": {lasting(long), shared}, "permit": {lasting(long), permits(1)},
		"nowait": {lasting(long), noWait}, "nowait reader": {lasting(long), noWait, shared},
	} {
		l := asker(t, b, "k").Lease("a", kind...)
		found, err := other.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, "a", found.Holder())
		put("x/behind", "zz/behind")
		p := asker(t, other, "k").Place("b", lasting(long))
		put("y/behind")
		next := asker(t, b, "k").Place("c", lasting(long))
		require.Eventually(t, l.Contended, patience, time.Millisecond, name)
		_, _, err = asker(t, other, "k").Try("d", noWait)
		require.EqualError(t, err, distributed.Held("a").Error(), name)
		release(t, l)
		l = granted(t, p)
		require.True(t, l.Contended(), name)
		release(t, l)
		release(t, granted(t, next))
	}
}

// A request of a version with another format is refused by name, and leaves nothing.
func TestOtherFormatsAreRefused(t *testing.T) {
	t.Parallel()
	addr, prefix := etcdtest.Shared(t).Addr, newPrefix()
	b := open(t, addr, prefix)
	c := plainClient(t, addr)
	testlocker.RefusesOtherFormats(t, asker(t, b, ""), func(key string) {
		_, err := c.Put(t.Context(), b.dirOf(key)+"x9/s/"+parts.Tag("P")+"-"+rand.Text()[:idLength], "P")
		require.NoError(t, err)
	})
	_, err := b.Inspect(t.Context(), "other-0")
	require.ErrorContains(t, err, "format 9")
	require.Eventually(t, func() bool { return count(t, c, b.dirOf("other-0")) == 1 }, testlocker.Patience, time.Millisecond)
}
