package sqllock

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed/driver"
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
		sent := time.Now()
		err := r.ask(func(ctx context.Context) error {
			return r.b.rows(ctx, r.b.db, text, args, func(scan func(...any) error) error {
				var name string
				var one row
				err := scan(&name, &one.owner, &one.queued, &one.members)
				seen[name] = one
				return err
			})
		})
		pause := max(holderLook, holderLook*time.Duration(r.b.known.count())/looksPerBatch)
		for _, a := range some {
			one := seen[a.Wire.name]
			switch {
			case err != nil:
				a.LookIn(r.b.nextHolderLook(a, pause))
			case !a.Wire.seat && one.owner != a.Wire.token, a.Wire.seat && one.members == 0: // one of those would be ours
				a.Gone()
			default:
				a.Stands(driver.Standing{
					Kind: driver.Granted, Sent: sent, Contended: one.queued > 0, Next: r.b.nextHolderLook(a, pause),
				})
			}
		}
	}
}

// nextHolderLook is when a holder looks again: later than after the last pause, by no more than half of it, at a moment that looks of many
// leases share.
func (b *Backend) nextHolderLook(a *attempt, longest time.Duration) time.Duration {
	a.Wire.mu.Lock()
	a.Wire.look = min(a.Wire.look*3/2, longest)
	in := a.Wire.look
	a.Wire.mu.Unlock()
	step := time.Millisecond
	for step*4 <= in {
		step *= 2
	}
	return in + step - (time.Since(b.base)+in)%step
}
