package sqllock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
)

var _ distributed.Inspector = (*Backend)(nil)

// scannedRows is how many rows a page looks at, at least: rows of locks that are free stay for a while.
const scannedRows = 1000

// snapshot is a lock as an inspection reads it.
type snapshot struct {
	state
	broken           string
	readers, waiting int // live ones, beside those among the entries
}

// Inspect implements distributed.Inspector. It is one statement, which changes nothing (rule D9).
func (b *Backend) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	found := distributed.Inspection{Key: key}
	if key == "" {
		return found, nil
	}
	name, _ := storedName(key)
	var v snapshot
	q := b.st().of(inspect)
	err := b.ask(ctx, "inspect", func(ctx context.Context) error {
		v = snapshot{}
		return b.rows(ctx, b.db, q.text, q.args(name, distributed.MaxNamed), func(scan func(...any) error) error {
			var e entry
			alike := 0
			err := scan(&v.owner, &v.mode, &v.ttl, &v.fence, &v.expires, &v.holder, &v.since, &v.broken, &v.now,
				&e.ticket, &e.token, &e.mode, &e.holds, &e.ttl, &e.fence, &e.expires, &e.holder, &e.since, &alike)
			switch {
			case err != nil || e.token == "":
				return err
			case e.holds:
				v.readers = alike
			default:
				v.waiting = alike
			}
			v.entries = append(v.entries, e)
			return nil
		})
	})
	if err == nil {
		v.describe(&found)
	}
	return found, err
}

// describe fills in what is known.
func (v *snapshot) describe(to *distributed.Inspection) {
	to.Fence = uint64(v.fence)
	to.Broken = brokenOf(v.broken, v.now)
	queued, members := v.count()
	to.MoreHolders, to.MoreWaiters = max(v.readers-members, 0), max(v.waiting-queued, 0)
	var tokens []string
	hold := func(token, instance string, mode distributed.Mode, since, left, ttl, fence int64) {
		if len(to.Holders) == distributed.MaxNamed {
			to.MoreHolders++
			return
		}
		at := time.UnixMicro(since)
		if to.Since.IsZero() || at.Before(to.Since) {
			to.Since = at
		}
		to.Mode = mode
		to.Holders = append(to.Holders, distributed.Holder{
			Instance: instance, Since: at, Left: time.Duration(min(left, ttl)) * time.Microsecond, Fence: uint64(fence),
		})
		tokens = append(tokens, token)
	}
	if v.owner != "" && v.expires > v.now { // its first fence is not kept
		hold(v.owner, v.holder, v.mode, v.since, v.expires-v.now, v.ttl, 0)
	}
	for _, e := range v.entries {
		if e.holds {
			hold(e.token, e.holder, distributed.Shared, e.since, e.expires-v.now, e.ttl, e.fence)
			continue
		}
		to.Waiters = append(to.Waiters, distributed.Waiter{Instance: e.holder, Mode: e.mode, Limit: e.limit, Since: time.UnixMicro(e.since)})
	}
	to.State = strings.Join(tokens, " ")
}

// List implements distributed.Inspector. It lists names in the order of their bytes, then those that are stored as hashes, for which it reads
// all of them. It does not list a key of more than 700 bytes, or that is not text.
func (b *Backend) List(ctx context.Context, prefix, cursor string, limit int) ([]distributed.Inspection, string, error) {
	if limit <= 0 {
		return nil, "", fmt.Errorf("sqllock: a page of %d keys: want 1 or more", limit)
	}
	after, hashes := strings.CutPrefix(cursor, cursorOfHashes)
	from, to := prefix, prefix+lastRune
	if hashes {
		from, to = string(hashMark), string(hashMark+1)
	} else {
		after = strings.TrimPrefix(cursor, cursorOfNames)
	}
	var page []distributed.Inspection
	last, more := "", false
	err := b.ask(ctx, "list", func(ctx context.Context) (err error) {
		page, last, more, err = b.page(ctx, []any{after, from, to, max(limit, scannedRows), limit}, func(key, name string) bool {
			stored, _ := storedName(key)
			return stored == name && strings.HasPrefix(key, prefix) && hashes == (name[0] == hashMark)
		})
		return err
	})
	switch {
	case err != nil:
		return nil, "", err
	case more && hashes:
		return page, cursorOfHashes + last, nil
	case more:
		return page, cursorOfNames + last, nil
	case hashes:
		return page, "", nil
	}
	return page, cursorOfHashes, nil
}

const (
	// A cursor is one of these and the last name that was looked at.
	cursorOfNames, cursorOfHashes = "n", "h"
	// lastRune is behind all that a name has after its prefix.
	lastRune = "\U0010FFFF"
)

// page returns the locks in use of a span that are wanted, the last name it has looked at, and whether there may be more.
func (b *Backend) page(ctx context.Context, args []any, wanted func(key, name string) bool) (page []distributed.Inspection, last string, more bool, err error) {
	q := b.st().of(list)
	err = b.rows(ctx, b.db, q.text, q.args(args...), func(scan func(...any) error) error {
		var v snapshot
		var e entry
		var full, end string
		looked := 0
		err := scan(&last, &full, &v.owner, &v.mode, &v.ttl, &v.fence, &v.expires, &v.holder, &v.since, &v.broken, &v.now, &v.readers,
			&v.waiting, &e.token, &e.ttl, &e.fence, &e.expires, &e.holder, &e.since, &looked, &end)
		more = last != end || looked == args[3]
		key := last
		if full != "" {
			key = full
		}
		if err != nil || !wanted(key, last) {
			return err
		}
		if e.token != "" && (v.owner == "" || v.expires <= v.now) { // one holder is named
			e.holds = true
			v.entries = append(v.entries, e)
		}
		found := distributed.Inspection{Key: key}
		v.describe(&found)
		if found.Held() || v.waiting > 0 {
			page = append(page, found)
		}
		return nil
	})
	return page, last, more, err
}
