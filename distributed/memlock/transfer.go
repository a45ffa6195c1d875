package memlock

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

var _ distributed.Transferer = (*Backend)(nil)

// Detach implements distributed.Transferer. On the server side a detached lease has an owner without a client.
func (b *Backend) Detach(ctx context.Context, of distributed.Lease, id string, lasts time.Duration) error {
	l, ok := distributed.As[*lease](of)
	if !ok || l.shard.backend != b {
		return keyless.Errorf("memlock: detach: want a lease of this backend")
	}
	s := l.shard
	s.mu.Lock()
	shared := l.mode == distributed.Shared
	s.mu.Unlock()
	if err := parts.CheckDetach("memlock", shared, id, lasts, 0); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	held := l.Finish() // before the lock is taken: it may call the Watcher
	s.mu.Lock()
	defer s.unlock()
	e := l.entry
	switch err := s.backend.reachable(); {
	case err != nil:
		l.releasing = l.state == owner // healing releases it
		return err
	case e == nil:
		return distributed.ErrLeaseLost
	case !held: // it has expired here, and the server has not noticed yet
		_ = s.release(l)
		return distributed.ErrLeaseLost
	}
	s.drop(l, released)
	d := s.grant(e, distributed.DetachedName(id), distributed.Exclusive, false, lasts, time.Now())
	d.expires = d.granted.Add(lasts)
	s.expiry.Put(&d.item, d.expires)
	d.keep()
	d.Stop() // it has no client
	return nil
}

// Adopt implements distributed.Transferer.
func (b *Backend) Adopt(ctx context.Context, req distributed.Request, id string) (distributed.Lease, error) {
	if err := parts.CheckAdopt("memlock", &req, id, 0); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := b.shardOf(req.Key)
	s.mu.Lock()
	defer s.unlock()
	if err := b.reachable(); err != nil {
		return nil, err
	}
	e := s.entries[req.Key]
	if e == nil || len(e.owners) == 0 || e.owners[0].instance != distributed.DetachedName(id) {
		return nil, distributed.ErrLeaseLost
	}
	s.drop(e.owners[0], released)
	l := s.grant(e, req.Instance, distributed.Exclusive, false, req.TTL, time.Now())
	s.contend(e)
	l.keep()
	return l, nil
}

// Discard implements distributed.Transferer.
func (b *Backend) Discard(ctx context.Context, req distributed.Request, id string) error {
	l, err := b.Adopt(ctx, req, id)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}
