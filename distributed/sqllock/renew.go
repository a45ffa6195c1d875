package sqllock

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
)

// renewBatch is how many leases share a statement: with two arguments each, far below what any of the databases takes.
const renewBatch = 4000

// renew is called by the Keeper. Leases that come due soon are renewed with those that are due, so that the renewals of a process
// gather in few statements, however its leases came about: a batch goes out at most every T/12 (rule D5).
func (b *Backend) renew(ctx context.Context, due []distributed.Lease) {
	var owners, seats []*lease
	seen := make(map[*lease]bool, len(due))
	sort := func(l *lease) {
		if seen[l] {
			return
		}
		seen[l] = true
		if l.seat {
			seats = append(seats, l)
		} else {
			owners = append(owners, l)
		}
	}
	for _, d := range due {
		if l := d.(*lease); l.a.unread() { // perhaps nobody will release it
			l.Postpone()
		} else {
			sort(l)
		}
	}
	if len(seen) == 0 {
		return
	}
	for _, l := range b.dueSoon() {
		sort(l)
	}
	select { // renewals use one connection
	case b.renewing <- struct{}{}:
		defer func() { <-b.renewing }()
	case <-ctx.Done():
		return
	}
	b.renewSome(ctx, owners, b.renewOwners)
	b.renewSome(ctx, seats, b.renewSeats)
}

// dueSoon returns the leases whose latest renewal is T/4 old or older, and fresh ones whose claim is due as soon.
func (b *Backend) dueSoon() []*lease {
	now := time.Now()
	var soon []*lease
	for _, a := range b.all() {
		a.mu.Lock()
		l := a.lease
		if a.state != leased || len(a.granted) > 0 {
			l = nil
		}
		a.mu.Unlock()
		if l == nil {
			continue
		}
		left, healthy := l.At(now)
		if age := a.ttl - distributed.Drift(a.ttl) - left; healthy && age >= a.ttl/4 && now.Sub(l.granted) > distributed.ClaimWindow(a.ttl)/6 {
			soon = append(soon, l)
		}
	}
	return soon
}

func (b *Backend) renewSome(ctx context.Context, all []*lease, renew func(context.Context, []*lease) (map[string]heldRow, error)) {
	for len(all) > 0 {
		some := all[:min(len(all), renewBatch)]
		all = all[len(some):]
		if b.dialect == MySQL && len(some) > 1 { // it would go on waiting for one row, with the others locked, when we have given up
			b.renewUnlocked(ctx, some)
			continue
		}
		var held map[string]heldRow
		var sent time.Time
		half, cancel := halfOf(ctx)
		err := retrying(half, func() (err error) {
			sent = time.Now()
			held, err = renew(half, some)
			return err
		})
		cancel()
		b.observe(sent, err)
		if err != nil {
			if len(some) > 1 && b.dialect == PostgreSQL && kindOf(err) <= collided {
				b.renewUnlocked(ctx, some)
			}
			continue // unknown: the Keeper tries again until they have expired
		}
		for _, l := range some {
			row, is := held[l.a.token]
			switch {
			case held == nil: // all, and nothing is known about the queues: a look will tell
				l.renewed(sent)
			case is:
				if l.renewed(sent) {
					l.SetContended(row.queued > 0)
				}
			default:
				l.End()
			}
		}
	}
}

// renewed extends the lease by an answer. One that comes after its end does not, if it shares the lock with an owner: its row is renewed
// without the lock's. So a transaction may have read the row when it had expired, and have let another in before it deletes it. An answer in
// time came before the row's expiry; whoever finds that expired reads later, and sees the renewal (rule D11).
func (l *lease) renewed(sent time.Time) bool {
	if l.seat && distributed.Over(time.Now(), l.Until()) {
		if l.End() {
			l.a.b.removals.add(l.a.b, l.a.removal())
		}
		return false
	}
	l.Renewed(distributed.Validity(sent, l.a.ttl))
	return true
}

// halfOf returns a context with half of the time that ctx has left.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

// heldRow is what the database has of a lease.
type heldRow struct {
	queued  int // who wait for the lock
	expires int64
}

// renewOwners returns the tokens that were renewed; nil: all were, and nothing is known about the queues. Without RETURNING
// the count says whether all were; if not, a look tells which. A token that is the owner after the update was it during the
// update: nobody becomes the owner a second time.
func (b *Backend) renewOwners(ctx context.Context, some []*lease) (map[string]heldRow, error) {
	names, tokens := namesOf(some)
	text, args := b.st().list(b.st().renew, names, tokens)
	if b.dialect.hasReturning() {
		return b.held(ctx, text+" RETURNING owner, queued, expires_at", args)
	}
	result, err := b.db.ExecContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	if n, err := result.RowsAffected(); err == nil && int(n) == len(some) {
		return nil, nil
	}
	text, args = b.st().list(b.st().owners, names)
	return b.held(ctx, text, args)
}

// renewSeats is renewOwners for readers beside others.
func (b *Backend) renewSeats(ctx context.Context, some []*lease) (map[string]heldRow, error) {
	_, tokens := namesOf(some)
	text, args := b.st().list(b.st().renewMembers, tokens)
	if _, err := b.db.ExecContext(ctx, text, args...); err != nil {
		return nil, err
	}
	text, args = b.st().list(b.st().seats, tokens)
	return b.held(ctx, text, args)
}

func namesOf(some []*lease) (names, tokens []string) {
	for _, l := range some {
		names, tokens = append(names, l.a.name), append(tokens, l.a.token)
	}
	return names, tokens
}

// held reads rows by their tokens.
func (b *Backend) held(ctx context.Context, text string, args []any) (map[string]heldRow, error) {
	held := make(map[string]heldRow)
	err := b.rows(ctx, b.db, text, args, func(scan func(...any) error) error {
		var token string
		var row heldRow
		err := scan(&token, &row.queued, &row.expires)
		held[token] = row
		return err
	})
	return held, err
}
