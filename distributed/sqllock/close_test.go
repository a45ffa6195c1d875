package sqllock

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// Close once broke off the release that was under way, and the lock stayed taken until it expired.
func TestCloseLetsAReleaseUnderWayEnd(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		a, b := d.backend(t), d.backend(t)
		require.NoError(t, b.Ping(t.Context()))
		l := enter(t, a, "key").(distributed.AsyncLease)
		reached, healed := make(chan struct{}), make(chan struct{})
		d.wire.filtered(func(s *statement) error {
			close(reached)
			<-healed
			return s.run()
		})
		require.False(t, l.StartRelease())
		<-reached
		var closing sync.WaitGroup
		closing.Go(func() { assert.NoError(t, a.Close()) })
		require.Eventually(t, func() bool { return a.ctx.Err() != nil }, time.Minute, time.Millisecond)
		time.Sleep(10 * time.Millisecond) // for what would break it off
		d.wire.filtered(nil)
		close(healed)
		closing.Wait()
		requireFree(t, b, "key")
	})
}

func requireFree(t *testing.T, b *Backend, key string) {
	t.Helper()
	var owner string
	q := b.dialect.compile(b.st().text("SELECT owner FROM {locks} WHERE name = $1"))
	require.NoError(t, b.db.QueryRowContext(t.Context(), q.text, q.args(key)...).Scan(&owner))
	require.Empty(t, owner)
}
