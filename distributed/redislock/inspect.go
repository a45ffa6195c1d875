package redislock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/parts"
)

const (
	// brokenKey is the name of the helper key that remembers a Break.
	brokenKey = "b"
	// scans bounds those of one page.
	scans = 16
	// oldestTicket is the least ticket that is a time, in microseconds: older versions counted from 1.
	oldestTicket = 1e15
	// breaker stands for an instance in the name of a helper key that Break does not use.
	breaker = "break"
)

var _ distributed.Inspector = (*Backend)(nil)

// Inspect implements distributed.Inspector. It sends one command, which changes nothing (rule R17).
func (b *Backend) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	name := b.redisKey(key)
	if err := checkKey(name); err != nil {
		return distributed.Inspection{Key: key}, err
	}
	all, err := b.inspect(ctx, []string{name}, distributed.MaxNamed, distributed.MaxNamed)
	if err != nil {
		return distributed.Inspection{Key: key}, err
	}
	all[0].Key = key
	return all[0], nil
}

// redisKey is the Redis key of a lock.
func (b *Backend) redisKey(full string) string {
	if b.key == nil || full == "" {
		return full
	}
	return b.key(full)
}

// List implements distributed.Inspector, by SCAN, in a cluster node by node. Keys of other programs that never expire do not count as locks.
// With WithKey, List is not supported, because a Redis key does not tell the lock's name.
func (b *Backend) List(ctx context.Context, prefix, cursor string, limit int) ([]distributed.Inspection, string, error) {
	switch {
	case b.key != nil:
		return nil, "", fmt.Errorf("redislock: list: keys that a pattern (WLLOCK_REDIS_KEY, WithKey) makes do not tell the names of locks: %w", errors.ErrUnsupported)
	case conn.IsHelper(prefix):
		return nil, "", checkKey(prefix)
	case limit <= 0:
		return nil, "", fmt.Errorf("redislock: a page of %d keys: want 1 or more", limit)
	case b.client.Closed():
		return nil, "", distributed.ErrClosed
	}
	var page []distributed.Inspection
	for range scans {
		keys, next, err := b.s.tr.Scan(ctx, cursor, prefix, limit)
		if err != nil {
			return nil, "", conn.Unavailable("list", err)
		}
		for len(keys) > 0 {
			n := min(len(keys), conn.MaxBatch)
			found, err := b.inspect(ctx, keys[:n], 1, 0)
			if err != nil {
				return nil, "", err
			}
			for _, one := range found {
				if one.Held() && !(one.Foreign && one.Holders[0].Left < 0) {
					page = append(page, one)
				}
			}
			keys = keys[n:]
		}
		if cursor = next; cursor == "" || len(page) >= limit {
			break
		}
	}
	return page, cursor, nil
}

// inspect asks for so many keys at once: one call in all, or in a cluster, where they are in different slots, one for each.
func (b *Backend) inspect(ctx context.Context, keys []string, holders, waiters int) ([]distributed.Inspection, error) {
	if b.client.Closed() {
		return nil, distributed.ErrClosed
	}
	size := len(keys)
	if b.s.tr.Node(ctx, keys[0]) != "" {
		size = 1
	}
	var calls []*conn.Call
	for at := 0; at < len(keys); at += size {
		var names []string
		for _, key := range keys[at:min(at+size, len(keys))] {
			all := keysOf(key, breaker)
			names = append(append(names, all[:keyCount-1]...), helperBase(key)+brokenKey)
		}
		calls = append(calls, conn.NewCall(inspectScript, names, holders, waiters))
	}
	b.s.tr.Do(conn.Within(ctx, conn.LongestTry), calls...)
	var all []distributed.Inspection
	for _, c := range calls {
		if c.Err != nil {
			return nil, conn.Unavailable("inspect", c.Err)
		}
		var found []inspected
		if err := json.Unmarshal([]byte(c.Reply), &found); err != nil {
			return nil, conn.Unavailable("inspect", conn.Refusal(fmt.Errorf("the server answers %q: %w", c.Reply, err)))
		}
		for _, one := range found {
			if n := conn.FormatIn(one.Value); n != 0 && waiters > 0 { // in a list it is a foreigner's
				return nil, parts.OtherFormat("redislock", n, Format)
			}
			i := one.inspection(waiters > 0)
			i.Key = keys[len(all)]
			all = append(all, i)
		}
	}
	return all, nil
}

// inspected is the reply of inspect.lua for one lock.
type inspected struct {
	Value   string   `json:"value"`
	TTL     int64    `json:"ttl"`
	Time    string   `json:"time"`
	State   string   `json:"state"`
	Readers []string `json:"readers"`
	Queue   []string `json:"queue"`
	Waiters []string `json:"waiters"`
	Broken  string   `json:"broken"`

	CountReaders int `json:"nreaders"`
	CountQueue   int `json:"nqueue"`
}

func (r inspected) inspection(named bool) (i distributed.Inspection) {
	reserved, _, _ := strings.Cut(r.State, " ")
	if len(reserved) == fenceDigits-3 {
		reserved += "999"
	}
	i.Fence = parseFence(reserved)
	left := time.Duration(r.TTL) * time.Millisecond
	switch kind, value := cutPrefix(r.Value); kind {
	case "x":
		words := strings.Split(value, ":") // process, attempt, instance, T unless an older version wrote it, fence
		if len(words) < 4 {
			break
		}
		fence := parseFence(words[len(words)-1])
		i.Since, i.State, i.Fence = r.timeOf(fence), r.Value, max(i.Fence, fence)
		i.Holders = []distributed.Holder{{Instance: instanceOf(words[2]), Since: i.Since, Left: left, Fence: fence}}
	case "s":
		i.Mode = distributed.Shared
		r.readers(&i, value)
	default:
		if r.TTL != -2 {
			i.Foreign, i.Holders = true, []distributed.Holder{{Left: left}}
		}
	}
	r.queue(&i, named)
	i.Broken = readBroken(r.Broken)
	return i
}

// cutPrefix returns the letter of a lock's value, and what is behind it.
func cutPrefix(value string) (kind, rest string) {
	value, ok := strings.CutPrefix(value, prefix)
	if !ok {
		return "", ""
	}
	kind, rest, _ = strings.Cut(value, ":")
	return kind, rest
}

// readers fills in the readers. Since when each has been there is not kept; the generation is the fence of the first.
func (r inspected) readers(i *distributed.Inspection, value string) {
	generation := value[strings.LastIndexByte(value, ':')+1:]
	i.State, i.Since = prefix+"s:"+generation, r.timeOf(parseFence(generation))
	now := r.now()
	for at := 0; at+1 < len(r.Readers); at += 2 {
		id := strings.SplitN(r.Readers[at], ":", 3)
		ends, _ := strconv.ParseInt(r.Readers[at+1], 10, 64)
		i.Holders = append(i.Holders, distributed.Holder{Instance: instanceOf(id[len(id)-1]), Left: time.UnixMilli(ends).Sub(now)})
	}
	if len(i.Holders) > 0 {
		i.MoreHolders = max(r.CountReaders-len(i.Holders), 0)
	}
}

func (r inspected) queue(i *distributed.Inspection, named bool) {
	if !named {
		i.MoreWaiters = r.CountQueue
		return
	}
	now := r.now()
	for at, raw := range r.Waiters {
		w := distributed.Waiter{Instance: instanceOf(r.Queue[2*at])}
		if ticket, _ := strconv.ParseFloat(r.Queue[2*at+1], 64); ticket > oldestTicket {
			if w.Since = time.UnixMicro(int64(ticket)); w.Since.After(now) {
				w.Since = now
			}
		}
		if words := strings.Fields(raw); len(words) > 2 && words[2][0] == 's' {
			w.Mode = distributed.Shared
			w.Limit, _ = strconv.Atoi(words[2][1:])
		}
		i.Waiters = append(i.Waiters, w)
	}
	i.MoreWaiters = max(r.CountQueue-len(i.Waiters), 0)
}

// now is the server's clock.
func (r inspected) now() time.Time { return readTime(r.Time) }

// readTime reads the two words of TIME.
func readTime(text string) time.Time {
	w := words(text)
	return time.Unix(w.number(), w.number()*1000)
}

// timeOf is when a fence was made: it is the server's clock then, unless that has been set back since (rule R9).
func (r inspected) timeOf(fence uint64) time.Time {
	if fence == 0 {
		return time.Time{}
	}
	if at := time.Unix(0, int64(fence)); at.Before(r.now()) {
		return at
	}
	return r.now()
}

// broken is what break.lua keeps as JSON.
type broken struct {
	By, Reason, Holder string
}

// readBroken reads what break.lua has kept; nil: nothing.
func readBroken(text string) *distributed.Breaking {
	w := words(text)
	at := time.Unix(w.number(), w.number()*1000)
	fence := parseFence(w.next())
	var kept broken
	if json.Unmarshal([]byte(w), &kept) != nil {
		return nil
	}
	return &distributed.Breaking{At: at, By: kept.By, Reason: kept.Reason, Holder: kept.Holder, Fence: fence}
}
