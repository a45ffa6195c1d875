package memcachelock

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/wllock/wllock/distributed"
)

// step changes a state that was read by a request sent at the given time, and reports whether it did. It is called again with
// what another has written meanwhile.
type step func(s *state, sent time.Time) (changed bool)

// change applies f to the state of a key. item is what is known of it; nil: nothing.
//
// Only a cas that finds its item unchanged writes, so no two steps cross, and one that arrives late does nothing: who gives up a claim
// after a request that was not answered changes the item (see withdraw). An add that arrives late, when there is no item, leaves a
// grant that nobody has, which ends as that of a process that has died. One danger is left: the unique numbers begin anew in a server
// that is restarted between a gets and its cas, which may meet its like there. By then the server has forgotten all locks anyway.
func (b *Backend) change(ctx context.Context, key string, item *memcache.Item, f step) error {
	for {
		err := b.try(key, item, f)
		conflict := errors.Is(err, memcache.ErrNotStored) || errors.Is(err, memcache.ErrCASConflict) || errors.Is(err, memcache.ErrCacheMiss)
		switch {
		case err == nil:
			return nil
		case !conflict:
			return sorted(err)
		case b.ctx.Err() != nil:
			return distributed.ErrClosed
		case ctx.Err() != nil:
			return distributed.Unavailable("memcachelock", ctx.Err())
		}
		item = nil // somebody was faster: again, at once
	}
}

// missing is an item that does not exist, as far as known.
func missing(key string) *memcache.Item { return &memcache.Item{Key: itemKey(key)} }

func (b *Backend) try(key string, item *memcache.Item, f step) (err error) {
	sent := time.Now()
	if item == nil {
		if item, err = b.client.Get(itemKey(key)); errors.Is(err, memcache.ErrCacheMiss) {
			item = missing(key)
		} else if err != nil {
			return err
		}
	}
	s, err := decode(item)
	if err != nil || !f(&s, sent) {
		return err
	}
	next := *item
	next.Value, next.Expiration = s.encode()
	if item.Value == nil {
		return b.client.Add(&next)
	}
	return b.client.CompareAndSwap(&next)
}

// sorted says what an error of the client's means to a caller.
func sorted(err error) error {
	var network *net.OpError
	var timeout net.Error
	kind := distributed.ErrRefused
	switch {
	case errors.As(err, new(*memcache.ConnectTimeoutError)), errors.As(err, &network) && network.Op == "dial":
		kind = distributed.ErrUnreached
	case errors.As(err, &timeout), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return distributed.Unavailable("memcachelock", err)
	}
	return distributed.Unavailable("memcachelock", err, kind)
}

// unanswered reports that the request may have been carried out.
func unanswered(err error) bool {
	return !errors.Is(err, distributed.ErrUnreached) && !errors.Is(err, distributed.ErrRefused)
}

func always(error) bool { return true }

// insist is change, again after errors of which again is true, for d at most.
func (b *Backend) insist(ctx context.Context, d time.Duration, key string, item *memcache.Item, again func(error) bool, f step) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for wait := firstRetry; ; wait = min(2*wait, d/retries) {
		err := ctx.Err()
		if err == nil {
			err = b.change(ctx, key, item, f)
		}
		if err == nil || !again(err) || !pause(ctx, wait) {
			return err
		}
		item = nil
	}
}

const (
	// firstRetry gets rid of a dead connection in the client's pool, at which a try fails at once.
	firstRetry = 5 * time.Millisecond
	// retries in the time of a request are few enough for a server that is away.
	retries = 30
)

// drop removes a claim that nobody uses. It goes on for T: then the claim is dead.
func (b *Backend) drop(key string, c claim) {
	_ = b.insist(b.ctx, c.TTL, key, nil, always, func(s *state, _ time.Time) bool { return s.withdraw(c.ID) })
}

// pause waits for d, give or take a quarter, so that instances that began together do not ask together. It reports false when
// ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d*3/4 + rand.N(d/2+1)):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
