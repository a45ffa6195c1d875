package sqllock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
)

// PostgreSQL can do in one statement what takes a transaction elsewhere, for exclusive requests: it returns what it has changed, and
// several changes make one statement. All of a statement sees the queue as it was when it began, and the lock's row as it is; so
// decisions are made on the row alone, or on what can only make them more careful.

const (
	uniqueViolation = "23505"
	divisionByZero  = "22012"
)

// queueAtOnce is Enter in one statement, also if the lock is taken. done is false if a transaction has to decide.
func (b *Backend) queueAtOnce(ctx context.Context, c *claim) (a answer, done bool, err error) {
	if !b.is.atOnce || c.noWait || c.queueMost > 0 || c.mode == distributed.Shared || c.prev != nil && c.prev.seat {
		return a, false, nil
	}
	var prior string
	var queued, members, notified int
	err = c.retrying(ctx, func() error {
		text := b.st().queueUp.text
		if b.notifies() {
			text = b.st().queueUpLoudly.text
		}
		a = answer{outcome: queuedUp, count: fenceBlock, sent: time.Now()}
		return b.loud(b.rows(ctx, b.db, text, b.acquireArgs(c, a.count), func(scan func(...any) error) error {
			var mine bool
			err := scan(&mine, &a.last, &prior, &queued, &a.holder, &members, &notified)
			a.holder = distributed.HolderText(a.holder, members)
			if mine {
				a.outcome = granted
			}
			return err
		}))
	})
	if err != nil {
		if code(err) == uniqueViolation { // an earlier try was carried out
			return answer{prevHeld: c.prev != nil}, false, nil
		}
		return a, false, err
	}
	a.contended, a.ahead = queued > 0, queued-1 // it counts itself, unless it was granted
	if c.prev != nil {
		a.prevHeld = prior == c.prev.token && a.outcome == granted || prior == c.token
		if prior == c.token && queued > 1 && notified == 0 && b.notifies() {
			b.notifyHeads(ctx, []string{c.name})
		}
	}
	return a, true, nil
}

// releaseAtOnce releases owners in one statement, whose text is the same for any number: each connection reads and plans it once. It notifies
// the heads of their queues, and sees the queue as it was when it began: if a waiter has been queued while it waited for the row, the row says so,
// and a second statement notifies.
func (b *Backend) releaseAtOnce(ctx context.Context, some []*attempt) (map[string]bool, error) {
	var names, tokens, last, drawn []string
	for _, a := range some {
		h := handleOf(a)
		names, tokens = append(names, a.Wire.name), append(tokens, h.token)
		last, drawn = append(last, strconv.FormatInt(h.last, 10)), append(drawn, strconv.FormatInt(h.drawn, 10))
	}
	loudly, text := b.notifies(), b.st().releaseAtOnce.text
	if loudly {
		text = b.st().releaseLoudly.text
	}
	found := make(map[string]bool, len(some))
	var missed []string
	err := b.rows(ctx, b.db, text, []any{array(names), array(tokens), array(last), array(drawn)}, func(scan func(...any) error) error {
		var name string
		var queued, notified, zero int
		err := scan(&name, &queued, &notified, &zero)
		found[name] = true
		if loudly && queued > 0 && notified == 0 {
			missed = append(missed, name)
		}
		return err
	})
	if err == nil && len(missed) > 0 {
		b.notifyHeads(ctx, missed)
	}
	return found, b.loud(err)
}

// array is an array as PostgreSQL reads it, whatever the driver.
func array(items []string) string {
	var text strings.Builder
	for i, item := range items {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(`"` + quoted.Replace(item) + `"`)
	}
	return "{" + text.String() + "}"
}

var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// takeAtOnce is take in one statement. done is false if a transaction has to decide.
func (b *Backend) takeAtOnce(ctx context.Context, c *claim) (a answer, done bool, err error) {
	if !b.is.atOnce || c.mode == distributed.Shared {
		return a, false, nil
	}
	a = answer{outcome: granted, count: fenceBlock}
	var others bool
	err = b.rows(ctx, b.db, b.st().takeFirst.text, b.st().takeFirst.args(c.name, c.token, a.count), func(scan func(...any) error) error {
		var queued, one int
		done = true
		err := scan(&a.last, &queued, &one, &others)
		a.contended = queued > 0
		return err
	})
	if err != nil && code(err) == divisionByZero {
		return a, false, nil
	}
	if a.contended && !others { // somebody has come just now, or rows were deleted by hand: they are counted anew
		_ = b.change(ctx, c.name, func(s *state) { s.tidy(); s.wake() })
	}
	return a, done && err == nil, err
}
