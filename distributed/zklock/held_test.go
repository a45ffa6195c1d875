package zklock

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// A break that found a holder ends no later one, also if the sequence has begun anew with another node of the key.
func TestABreakEndsNobodyBelowANewNodeOfTheKey(t *testing.T) {
	t.Parallel()
	b := open(t, need(t).Addr, newRoot())
	ask, conn := asker{t, b, "k"}, plainConn(t, server.Addr)
	for name, change := range map[string]func(*distributed.Request){"a writer": func(*distributed.Request) {}, "a reader": shared} {
		l := ask.lease("a", change, lasting(long))
		found, err := b.Inspect(t.Context(), "k")
		require.NoError(t, err)
		release(t, l)
		require.Eventually(t, func() bool { // or the server has done it
			err := conn.Delete(b.dirOf("k"), -1)
			return err == nil || errors.Is(err, zk.ErrNoNode)
		}, patience, time.Millisecond)
		l = ask.lease("b", change, lasting(long))
		_, err = b.Break(t.Context(), found, "somebody", "a test")
		require.ErrorIs(t, err, distributed.ErrNotHeld, name)
		require.True(t, l.Healthy())
		release(t, l)
	}
}
