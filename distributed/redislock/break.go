package redislock

import (
	"context"
	"encoding/json"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/keyless"
)

// breakBudget bounds the tries of a Break.
const breakBudget = 2 * time.Second

// Break implements distributed.Inspector (rule R17). If the answer to a try is lost, its repeat may find the lock already broken: then the error
// Is ErrNotHeld, although the lock was broken.
func (b *Backend) Break(ctx context.Context, found distributed.Inspection, by, reason string) (distributed.Breaking, error) {
	record, err := distributed.NewBreaking(found, by, reason)
	if err != nil {
		return record, err
	}
	if b.client.Closed() {
		return record, distributed.ErrClosed
	}
	key := b.redisKey(found.Key)
	if err := checkKey(key); err != nil {
		return record, err
	}
	text, err := json.Marshal(broken{By: by, Reason: reason, Holder: record.Holder})
	if err != nil {
		return record, err
	}
	c := b.s.breaks(key, identity.NewAttempt(b.client.NextNumber()), found.State, string(text))
	if _, err = b.s.ask(ctx, c, conn.OrphanTTL, breakBudget); err != nil {
		return record, err
	}
	w := words(c.Reply)
	if w.next() != "broken" {
		return record, keyless.Errorf("redislock: break: %w", distributed.ErrNotHeld)
	}
	record.Fence = parseFence(w.next())
	record.At = readTime(string(w))
	b.s.log.Warn("redislock: a lease was ended by force", "holder", record.Holder, "by", by, "fence", record.Fence)
	return record, nil
}

// breaks ends what was found.
func (s *sender) breaks(key string, id identity.Attempt, found, text string) *conn.Call {
	var w wireAttempt
	w.init(s, s.process, id, key, breaker, distributed.Exclusive, conn.OrphanTTL, distributed.ClaimWindow(conn.OrphanTTL))
	seen := w.space.seen.Load()
	return conn.NewCall(breakScript, append(w.keys[:], helperBase(key)+brokenKey), w.token, w.attempt, w.mode, w.fixed.fresh, w.fixed.keep,
		w.fixed.settings, fenceArg(&seen), found, text, distributed.BrokenMemory.Milliseconds())
}
