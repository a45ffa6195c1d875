package sqllock

import (
	"context"
	"slices"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// renewBatch is how many leases share a statement: with two arguments each, far below what any of the databases takes.
const renewBatch = 4000

// Renew implements driver.Renewer. Leases that come due soon are renewed with those that are due. So the renewals of a process gather in
// few statements, however its leases came about, and a batch goes out at most every T/12 (rule D5).
func (d half) Renew(ctx context.Context, due []*attempt) {
	var owners, seats []*attempt
	seen := make(map[*attempt]bool, len(due))
	shortest := due[0].TTL
	sort := func(all []*attempt) {
		for _, a := range all {
			switch {
			case seen[a]:
				continue
			case a.Wire.seat:
				seats = append(seats, a)
			default:
				owners = append(owners, a)
			}
			seen[a], shortest = true, min(shortest, a.TTL)
		}
	}
	sort(due)
	sort(d.dueSoon())
	ctx, cancel := context.WithTimeout(ctx, distributed.RenewInterval(shortest))
	defer cancel()
	select { // renewals use one connection
	case d.renewing <- struct{}{}:
		defer func() { <-d.renewing }()
	case <-ctx.Done():
		unrenewed(due, errBusy)
		return
	}
	d.renewSome(ctx, owners, d.renewOwners)
	d.renewSome(ctx, seats, d.renewSeats)
}

// errBusy: those before it have taken all the time.
var errBusy = keyless.Errorf("other renewals have the connection")

// unrenewed says why these were not renewed.
func unrenewed(some []*attempt, err error) {
	for _, a := range some {
		a.Unrenewed(explain("renew", err))
	}
}

// dueSoon returns the attempts whose latest renewal is T/4 old or older, and fresh ones whose claim is due as soon.
func (b *Backend) dueSoon() []*attempt {
	now := time.Now()
	return slices.DeleteFunc(b.known.all(), func(a *attempt) bool {
		l := a.Lease()
		if l == nil || a.Unread() {
			return true
		}
		left, healthy := l.At(now)
		return !healthy || a.TTL-distributed.Drift(a.TTL)-left < a.TTL/4 || now.Sub(a.Wire.granted) <= a.Window/6
	})
}

func (b *Backend) renewSome(ctx context.Context, all []*attempt, renew func(context.Context, []*attempt) (map[string]heldRow, error)) {
	for len(all) > 0 {
		some := all[:min(len(all), renewBatch)]
		all = all[len(some):]
		if b.is.goesOn && len(some) > 1 { // it would go on waiting for one row, with the others locked, when we have given up
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
			if len(some) > 1 && effectOf(err) <= collided {
				b.renewUnlocked(ctx, some)
			} else {
				unrenewed(some, err)
			}
			continue
		}
		for _, a := range some {
			row, is := held[a.Wire.token]
			switch {
			case held == nil: // all, and nothing is known about the queues: a look will tell
				l := a.Lease()
				b.renewed(a, sent, l != nil && l.Contended())
			case is:
				b.renewed(a, sent, row.queued > 0)
			default:
				a.Gone()
			}
		}
	}
}

// renewed extends the lease by an answer. One that comes after its end does not, if it shares the lock with an owner: its row is renewed
// without the lock's. So a transaction may have read the row when it had expired, and have let another in before it deletes it. An answer
// in time came before the row's expiry; whoever finds that expired reads later, and sees the renewal (rule D11).
func (b *Backend) renewed(a *attempt, sent time.Time, contended bool) {
	until := distributed.Validity(a.Wire.granted, a.Window)
	if l := a.Lease(); l != nil {
		until = l.Until()
	}
	if !a.Wire.seat || !distributed.Over(time.Now(), until) {
		a.Renewed(sent, contended)
		return
	}
	a.Gone()
	row := b.client.Orphan(b.client.NextNumber(), a.Request)
	row.Lane, row.Wire.name, row.Wire.token, row.Wire.unknown = b.lane, a.Wire.name, a.Wire.token, true
	row.Discard()
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
func (b *Backend) renewOwners(ctx context.Context, some []*attempt) (map[string]heldRow, error) {
	names, tokens := namesOf(some)
	text, args := b.st().list(b.st().renew, names, tokens)
	if b.is.returning {
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
func (b *Backend) renewSeats(ctx context.Context, some []*attempt) (map[string]heldRow, error) {
	_, tokens := namesOf(some)
	text, args := b.st().list(b.st().renewMembers, tokens)
	if _, err := b.db.ExecContext(ctx, text, args...); err != nil {
		return nil, err
	}
	text, args = b.st().list(b.st().seats, tokens)
	return b.held(ctx, text, args)
}

func namesOf(some []*attempt) (names, tokens []string) {
	for _, a := range some {
		names, tokens = append(names, a.Wire.name), append(tokens, a.Wire.token)
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
