package sqllock

import (
	"cmp"
	"context"
	"errors"
)

// errProbed ends the transaction of a Ping, so that it has no effect.
var errProbed = errors.New("sqllock: probed")

// Ping implements distributed.Backend. It asks for the settings of a session, takes a lock and a place of its own, notes a TTL, and rolls all of
// that back. So it needs the same rights as a lock.
func (b *Backend) Ping(ctx context.Context) error {
	return b.ask(ctx, "ping", func(ctx context.Context) error {
		if _, err := sessionOf(ctx, b.db, b.dialect, b.st().set); err != nil {
			return err
		}
		err := b.inTransaction(ctx, func(q querier) error { return cmp.Or(b.trial(ctx, q), errProbed) })
		return ignoring(err, errProbed)
	})
}

// trial does once what a lock does to each table.
func (b *Backend) trial(ctx context.Context, q querier) error {
	name, token := string(hashMark)+"ping."+b.process, b.newToken()
	took := b.st().acquire.args(name, nil, token, "", 0, int64(1), int64(1), int64(1), int64(0), int64(0), "")
	if _, err := q.ExecContext(ctx, b.st().acquire.text, took...); err != nil {
		return err
	}
	if _, err := b.read(ctx, q, name); err != nil { // which bounds the transaction
		return err
	}
	if err := b.rows(ctx, q, b.st().entries.text, b.st().entries.args(name), func(func(...any) error) error { return nil }); err != nil {
		return err
	}
	for _, step := range []struct {
		query
		args []any
	}{
		{b.st().add, []any{name, int64(1), token, 0, 0, int64(1), int64(0), int64(0), "", int64(0)}},
		{b.st().alter, []any{name, int64(1), 0, int64(0), int64(0), int64(0)}},
		{b.st().of(removePlace), []any{name, int64(1)}},
		{b.st().of(noteTTL), []any{name, int64(1), int64(1)}},
	} {
		if _, err := q.ExecContext(ctx, step.text, step.query.args(step.args...)...); err != nil {
			return err
		}
	}
	return nil
}
