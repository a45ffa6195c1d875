package register

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

var _ distributed.Inspector = (*Backend)(nil)

// Inspect implements distributed.Inspector. Times are by the clocks of those who wrote the document.
func (b *Backend) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	found := distributed.Inspection{Key: key}
	d, err := b.store.Get(ctx, key)
	if err != nil {
		return found, b.client.OrClosed(err)
	}
	l, err := b.decode(d)
	if err != nil {
		return found, err
	}
	return l.inspection(key, distributed.MaxNamed, distributed.MaxNamed), nil
}

// List implements distributed.Inspector.
func (b *Backend) List(ctx context.Context, prefix, cursor string, limit int) (page []distributed.Inspection, next string, err error) {
	if err := parts.CheckPage(b.name, limit); err != nil {
		return nil, "", err
	}
	lister, ok := b.store.(Lister)
	if !ok {
		return nil, "", keyless.Errorf("%s: the keys cannot be listed: %w", b.name, errors.ErrUnsupported)
	}
	docs, next, err := lister.List(ctx, prefix, cursor, limit)
	if err != nil {
		return nil, "", b.client.OrClosed(err)
	}
	for _, d := range docs {
		if l, err := b.decode(d.Document); err == nil && len(l.Owners) > 0 {
			page = append(page, l.inspection(d.Key, 1, 0))
		}
	}
	return page, next, nil
}

// inspection names so many holders and waiters.
func (l *lock) inspection(key string, holders, waiters int) distributed.Inspection {
	found := distributed.Inspection{Key: key, Broken: l.breaking()}
	if l.Fence > 0 {
		found.Fence = l.Fence - 1
	}
	var ids []string
	for i, c := range l.Owners {
		ids = append(ids, c.ID)
		if c.Shared {
			found.Mode = distributed.Shared
		}
		if i < holders {
			found.Holders = append(found.Holders, distributed.Holder{Instance: c.Instance, Since: time.UnixMilli(c.Since), Fence: c.Fence})
		}
	}
	for _, c := range l.Queue[:min(len(l.Queue), waiters)] {
		w := distributed.Waiter{Instance: c.Instance, Limit: c.Limit, Since: time.UnixMilli(c.Since)}
		if c.Shared {
			w.Mode = distributed.Shared
		}
		found.Waiters = append(found.Waiters, w)
	}
	if len(l.Owners) > 0 {
		found.Since = time.UnixMilli(l.Owners[0].Since)
	}
	found.State = strings.Join(ids, " ")
	found.MoreHolders, found.MoreWaiters = len(l.Owners)-len(found.Holders), len(l.Queue)-len(found.Waiters)
	return found
}

// Break implements distributed.Inspector. The step that takes the holders out is that of a release, so it is one with all others. It finds
// its own record if it was carried out and not answered.
func (b *Backend) Break(ctx context.Context, found distributed.Inspection, by, reason string) (distributed.Breaking, error) {
	record, err := distributed.NewBreaking(found, by, reason)
	if err != nil {
		return record, keyless.Errorf("%s: %w", b.name, err)
	}
	id, done := b.newID(), false
	l, err := b.change(ctx, found.Key, nil, func(l *lock, _ time.Time) (changed bool) {
		isHeld := func(id string) bool { return index(l.Owners, id) >= 0 }
		before := l.Broken != nil && l.Broken.ID == id
		changed = !before && slices.ContainsFunc(strings.Fields(found.State), isHeld)
		if done = before || changed; changed {
			l.Broken = &broken{ID: id, At: l.now.UnixMilli(), By: by, Reason: reason, Holder: record.Holder, Fence: max(l.Fence, 1) - 1}
			l.Owners = nil
			l.admitHeads()
		}
		return changed
	})
	switch {
	case err != nil:
		return distributed.Breaking{}, b.client.OrClosed(err)
	case !done:
		return distributed.Breaking{}, keyless.Errorf("%s: break: %w", b.name, distributed.ErrNotHeld)
	}
	return *l.breaking(), nil
}
