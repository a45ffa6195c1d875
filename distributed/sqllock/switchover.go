package sqllock

import (
	"context"
	"database/sql/driver"
	"time"
)

const (
	// dropTime bounds the closing of connections.
	dropTime = 5 * time.Second
	// dropPause is between two times: a server that stays as it is costs no more connections than that.
	dropPause = 250 * time.Millisecond
)

// leaveUnable closes the connections that nobody uses, after an error of a server that the name may lead away from (rule D12). After a
// switch-over the name leads to another server, but the old one answers on, and a pool that is in use would keep those connections for ever.
func (b *Backend) leaveUnable() {
	if !b.sessions.dropping.CompareAndSwap(false, true) {
		return
	}
	b.client.Go(func() {
		defer b.sessions.dropping.Store(false)
		ctx, cancel := context.WithTimeout(b.ctx, dropTime)
		defer cancel()
		for range max(b.db.Stats().Idle, 1) {
			conn, err := b.db.Conn(ctx)
			if err != nil {
				break
			}
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool closes it
		}
		sleep(b.ctx, dropPause)
	})
}
