package sqllock

import (
	"context"
	"time"
)

// lookAtLeases finds out whether leases are contended, or have been taken away.
func (r *round) lookAtLeases() {
	for rest := r.leases; len(rest) > 0; {
		some := rest[:min(len(rest), renewBatch)]
		rest = rest[len(some):]
		names, _ := namesOf(some)
		text, args := r.b.st().list(r.b.st().leases, names)
		type row struct {
			owner           string
			queued, members int
		}
		seen := make(map[string]row)
		err := r.ask(func(ctx context.Context) error {
			return r.b.rows(ctx, r.b.db, text, args, func(scan func(...any) error) error {
				var name string
				var one row
				err := scan(&name, &one.owner, &one.queued, &one.members)
				seen[name] = one
				return err
			})
		})
		pause := max(holderLook, holderLook*time.Duration(len(r.b.all()))/looksPerBatch)
		for _, l := range some {
			one := seen[l.a.name]
			switch {
			case err != nil:
			case !l.seat && one.owner != l.a.token, l.seat && one.members == 0: // one of those would be ours
				l.End()
				continue
			default:
				l.SetContended(one.queued > 0)
			}
			l.planLook(pause)
		}
	}
}

func (l *lease) planLook(longest time.Duration) {
	l.mu.Lock()
	l.look = min(l.look*3/2, longest)
	next := l.look
	l.mu.Unlock()
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	if l.a.state == leased && !l.ending() {
		l.a.planOnGrid(next)
	}
}

// planOnGrid plans a look later than in the given time, by no more than half of it, at a moment that looks of many leases share. The
// caller holds mu.
func (a *attempt) planOnGrid(in time.Duration) {
	step := time.Millisecond
	for step*4 <= in {
		step *= 2
	}
	at := time.Now().Add(in)
	a.b.due.Put(&a.item, at.Add(step-at.Sub(a.b.base)%step))
}
