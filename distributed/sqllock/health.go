package sqllock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Observe implements distributed.Observable. It reports every exchange, of callers and of background tasks.
func (b *Backend) Observe(f func(distributed.Exchange)) (stop func()) { return b.client.Observe(f) }

// observe reports an exchange. One that has collided with others was answered.
func (b *Backend) observe(sent time.Time, err error) {
	if err != nil && mayHaveMoved(err) {
		b.leaveUnable()
	}
	if b.ctx.Err() != nil {
		return
	}
	e := distributed.Exchange{Sent: sent, RTT: time.Since(sent)}
	if err != nil && !errors.Is(err, errNoRow) {
		e.Err = explain("request", err)
		if !errors.Is(e.Err, distributed.ErrRefused) {
			e.RTT = 0
		}
	}
	b.client.Report(e)
}

// askTime bounds Ping, Echo and LongestTTL, whose callers need not have a deadline.
const askTime = 5 * time.Second

// ask runs a question that is not about a lock.
func (b *Backend) ask(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	if b.client.Closed() || !b.client.Begin() {
		return distributed.ErrClosed
	}
	defer b.client.Done()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	stop := context.AfterFunc(b.ctx, cancel)
	defer stop()
	start := time.Now()
	err := retrying(ctx, func() error {
		if err := b.fit(ctx); err != nil {
			return err
		}
		return fn(ctx)
	})
	b.observe(start, err)
	return b.client.OrClosed(explain(what, err))
}

// Echo implements distributed.Observable. It sends the lightest statement.
func (b *Backend) Echo(ctx context.Context) error {
	err := b.ask(ctx, "echo", func(ctx context.Context) error {
		return b.rows(ctx, b.db, lightest, nil, func(func(...any) error) error { return nil })
	})
	if errors.Is(err, distributed.ErrRefused) {
		return nil // it answers
	}
	return err
}

// ttlMemory is how long a TTL in use is remembered at least.
const ttlMemory = 5 * time.Minute

// LongestTTL implements distributed.TTLRegistry. A note is a row for each system and TTL.
func (b *Backend) LongestTTL(ctx context.Context, system string, own time.Duration) (time.Duration, error) {
	note, _ := storedName("ttl:" + system)
	longest := own
	err := b.ask(ctx, "note TTL", func(ctx context.Context) error {
		longest = own
		name, memory := note+":"+strconv.FormatInt(int64(own), 36), micros(max(ttlMemory, 2*own))
		if len(name) > longestName {
			name, _ = storedName(name)
		}
		q := b.st().of(noteTTL)
		if _, err := b.db.ExecContext(ctx, q.text, q.args(name, int64(own), memory)...); err != nil {
			return err
		}
		look := b.st().of(ttls)
		return b.rows(ctx, b.db, look.text, look.args(note+":", note+";"), func(scan func(...any) error) error {
			var value int64
			err := scan(&value)
			longest = max(longest, time.Duration(value))
			return err
		})
	})
	return longest, err
}
