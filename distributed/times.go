package distributed

import "time"

// The times of the protocol, all derived from the lease TTL T, for every backend and every test.

// MinTTL is the shortest lease TTL: below it the drift allowance would use up the claim window (see ClaimWindow).
const MinTTL = 50 * time.Millisecond

// RenewInterval (T/3) is the time from one renewal of a lease to the next: two further tries fit before it expires (rule K1).
func RenewInterval(ttl time.Duration) time.Duration { return ttl / 3 }

// HeartbeatInterval (H = T/6) is the interval in which the place of a waiting instance is refreshed.
func HeartbeatInterval(ttl time.Duration) time.Duration { return ttl / 6 }

// ClaimWindow (W = T/2) is how long a fresh grant is valid until its first renewal claims it. A grant that is not received delays others by no
// more than this (rule K5). A backend may grant more, up to T, where a claim takes longer.
func ClaimWindow(ttl time.Duration) time.Duration { return ttl / 2 }

// Drift returns the drift allowance, which is subtracted from every validity. It allows 1% for clocks that run at different speeds, and 10 ms
// for their resolution and for expiry in steps. The Redlock description in the Redis documentation has a finer allowance of this kind.
func Drift(d time.Duration) time.Duration { return d/100 + 10*time.Millisecond }

// Validity returns the time until which a right of length d that was requested at sent may be relied on. It counts from the sending of the
// request, never from the answer: the backend may have started its own clock at any time between (rule K4).
func Validity(sent time.Time, d time.Duration) time.Time { return sent.Add(d - Drift(d)) }

// Over reports whether until has passed: see Left.
func Over(now, until time.Time) bool { return Left(now, until) <= 0 }

// clockStep is the least difference between the clocks that is taken for a step of the wall clock. The two are read one
// after the other, so they always differ by a little; as a loss of validity, 1 ms is within the drift allowance.
const clockStep = time.Millisecond

// Left returns the time from now to until by the clock that leaves less (rule K2). The monotonic clock stands still while a machine is
// suspended, and the wall clock can be set back: a holder that trusted only one of them could work past its lease.
//
// The wall clock can also be set forward, for example by NTP. That says nothing about a lease. On Linux Left can tell the two apart: if the
// machine has not been suspended since the process began, the monotonic clock decides.
func Left(now, until time.Time) time.Duration {
	monotonic, wall := until.Sub(now), until.Round(0).Sub(now.Round(0))
	if monotonic-wall > clockStep && !suspended() {
		return monotonic
	}
	return min(monotonic, wall)
}
