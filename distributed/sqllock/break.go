package sqllock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// Break implements distributed.Inspector, in one transaction (rule D9). The next waiter takes the lock by a statement of its own, as after a
// release. The holder learns of the break by a notification, or at its next look.
func (b *Backend) Break(ctx context.Context, found distributed.Inspection, by, reason string) (distributed.Breaking, error) {
	record, err := distributed.NewBreaking(found, by, reason)
	if err != nil {
		return record, err
	}
	name, _ := storedName(found.Key)
	id, done := b.newToken(), false
	err = b.ask(ctx, "break", func(ctx context.Context) error {
		return b.inTransaction(ctx, func(q querier) (err error) {
			done, err = b.breaks(ctx, q, name, id, strings.Fields(found.State), &record)
			return err
		})
	})
	switch {
	case err != nil:
		return record, err
	case !done:
		return record, keyless.Errorf("sqllock: break: %w", distributed.ErrNotHeld)
	}
	b.poke(name, nil)
	b.set.log.Warn("sqllock: a lease was ended by force", "holder", record.Holder, "by", by, "fence", record.Fence)
	return record, nil
}

// breaks ends what was found, unless a try whose answer was lost has done so: its record says that.
func (b *Backend) breaks(ctx context.Context, q querier, name, id string, tokens []string, record *distributed.Breaking) (bool, error) {
	s, err := b.read(ctx, q, name)
	if err != nil {
		return false, ignoring(err, errNoRow)
	}
	if !s.endAll(tokens, record) {
		earlier, err := b.notedBreak(ctx, q, name, id, s.now)
		if earlier == nil || err != nil {
			return false, err
		}
		*record = *earlier
		return true, nil
	}
	if err = b.save(ctx, q, name, s); err != nil {
		return false, err
	}
	keep := b.st().of(note)
	_, err = q.ExecContext(ctx, keep.text, keep.args(name, brokenText(record, id))...)
	return err == nil, err
}

func ignoring(err, one error) error {
	if errors.Is(err, one) {
		return nil
	}
	return err
}

// endAll ends the leases of all holders if one of them has one of the tokens, and moves the fence beyond them. A lease that begins
// later has a token of its own.
func (s *state) endAll(tokens []string, record *distributed.Breaking) bool {
	s.tidy()
	var holders []string
	if s.owner != "" {
		holders = append(holders, s.owner)
	}
	for _, e := range s.entries {
		if e.holds {
			holders = append(holders, e.token)
		}
	}
	if !slices.ContainsFunc(holders, func(token string) bool { return slices.Contains(tokens, token) }) {
		return false
	}
	s.owner, s.dirty = "", true
	s.discard(func(e *entry) bool { return e.holds })
	s.fence = max(s.fence, s.now*nsPerTick) + 1 // a block ends at the fence that was there
	s.wake()
	s.woken = append(s.woken, holders...)
	record.At, record.Fence = time.UnixMicro(s.now), uint64(s.fence)
	return true
}

// notedBreak returns the record of a lock if it is that of this id.
func (b *Backend) notedBreak(ctx context.Context, q querier, name, id string, now int64) (record *distributed.Breaking, err error) {
	look := b.st().of(noted)
	err = b.rows(ctx, q, look.text, look.args(name), func(scan func(...any) error) error {
		var text string
		err := scan(&text)
		if fields := strings.Split(text, "\t"); len(fields) >= brokenFields && fields[4] == id {
			record = brokenOf(text, now)
		}
		return err
	})
	return record, err
}

// brokenFields is how many there are in the text of a record: when, by whom, why, the fence, an id, and the holder. Tabs are between
// them, for neither of those in front of the last can have one.
const brokenFields = 6

func brokenText(r *distributed.Breaking, id string) string {
	return strings.Join([]string{
		r.At.UTC().Format(time.RFC3339Nano), r.By, r.Reason, strconv.FormatUint(r.Fence, 10), id, cut(r.Holder, 2*longestInstance),
	}, "\t")
}

// brokenOf reads a record; nil: there is none, or it is forgotten.
func brokenOf(text string, now int64) *distributed.Breaking {
	f := strings.SplitN(text, "\t", brokenFields)
	if len(f) < brokenFields {
		return nil
	}
	at, err := time.Parse(time.RFC3339Nano, f[0])
	if err != nil || time.UnixMicro(now).Sub(at) > distributed.BrokenMemory {
		return nil
	}
	fence, _ := strconv.ParseUint(f[3], 10, 64)
	return &distributed.Breaking{At: at.Local(), By: f[1], Reason: f[2], Holder: f[5], Fence: fence}
}
