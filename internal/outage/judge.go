package outage

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

const (
	// missesToDecide is how many questions in a row must have stayed without an answer (rule O1). One or two are a dropped
	// connection, a slow command, or a failover of the server, which the next finds repaired.
	missesToDecide = 3
	// shortestPatience is how long a question may take before it counts as unanswered, while the backend is quick.
	shortestPatience = 250 * time.Millisecond
	// firstPatience bounds the same while no round trip has been measured: it leaves time for a new connection, and a
	// backend that is silent from the beginning is known to be within 2.5 s.
	firstPatience = 1750 * time.Millisecond
	// longestPatience bounds the same for slow round trips, as far as they allow.
	longestPatience = 5 * time.Second
	// patienceRTTs is the patience in round trips.
	patienceRTTs = 4
)

// judge says whether a backend is away: the one judge of all policies over it. Its evidence is every exchange with the
// service, if the backend is Observable, else the outcomes of Enter and of renewals; and the answers to its own questions
// (echo.go), which it asks only where there is no other evidence.
//
//	answering ── first miss ──▶ suspected ── missesToDecide in a row, none answered ──▶ away
//	    ▲                           │                                                   │
//	    └──────── any answer ───────┴───────────────────────────────────────────────────┘
//
// What is healthy costs some loads and stores of atomics per question, and no lock.
type judge struct {
	backend   distributed.Backend
	observes  bool // every exchange is reported by the backend itself
	unobserve func()
	base      time.Time // of the times below
	ctx       context.Context
	cancel    context.CancelFunc

	answeredAt atomic.Int64           // when the last answer came
	open       atomic.Int64           // when the first question was asked of those that no answer has followed; 0: none
	entering   atomic.Int64           // Enters under way
	rtt        atomic.Int64           // smoothed round trip; 0: none was measured
	current    atomic.Pointer[outage] // nil: nothing is wrong. Written under mu
	waiting    atomic.Int64           // callers that wait for a grant
	running    atomic.Bool            // the goroutine of echo.go runs. Written under mu
	wake       chan struct{}          // holds one; ends its pause
	wg         sync.WaitGroup         // of it and of the echoes; Add under mu, unless ctx has ended

	users  int  // guarded by judges.mu
	shared bool // by all policies over the backend, which judges has; never changed

	mu        sync.Mutex // guards all below
	ttl       time.Duration
	listeners []listener
	asking
	flights flights // has a mutex of its own
}

// listener is a policy. Its methods are called under judge.mu and must not call the judge.
type listener interface {
	suspected(*outage)
	away(*outage)
	ended(*outage)
}

// outage is a time without answers, from the first failure to the first answer. A process that was stopped meanwhile knows
// nothing of that time, so another outage follows this one (rule O5).
type outage struct {
	first   time.Time     // when the first failure became known, also of the outages that this one follows
	began   time.Time     // the same of this one
	over    chan struct{} // closed at its end
	follows *outage       // set before over is closed; nil: it was ended by an answer

	decided atomic.Bool
	last    atomic.Pointer[miss]

	misses int       // guarded by judge.mu; until decided
	next   time.Time // guarded by judge.mu; a question asked before tells nothing that is not known yet
	quick  bool      // guarded by judge.mu; the last miss took no time
}

// miss is a failure that counts.
type miss struct {
	known time.Time
	err   error
}

func (o *outage) isAway() bool { return o.decided.Load() }

// cause is what came of the last question; it Is ErrUnavailable.
func (o *outage) cause() error {
	err := o.last.Load().err
	if errors.Is(err, distributed.ErrUnavailable) {
		return err
	}
	return distributed.Unavailable("", err)
}

// broken reports that nothing was noticed for longer than silence: the process was stopped (rule O5). Both clocks have to
// agree, because one stands still while a machine is suspended.
func (o *outage) broken(now time.Time, silence time.Duration) bool {
	last := o.last.Load().known
	return max(now.Sub(last), now.Round(0).Sub(last.Round(0))) > silence
}

// clock makes a number of a time that is not before the judge's own beginning.
func (j *judge) clock(t time.Time) int64 { return max(int64(t.Sub(j.base)), 1) }

// time is the time of which clock made a number.
func (j *judge) time(clock int64) time.Time { return j.base.Add(time.Duration(clock)) }

// asked notes that an Enter begins now, and returns when that is on the judge's clock.
func (j *judge) asked(now time.Time) (sent int64) {
	j.entering.Add(1)
	sent = j.clock(now)
	if j.open.Load() == 0 {
		j.open.Store(sent)
	}
	j.needed()
	return sent
}

// returned notes that an Enter has returned.
func (j *judge) returned() { j.entering.Add(-1) }

// verdict is what an error tells of the backend.
type verdict uint8

const (
	answer  verdict = iota // it has answered
	silence                // it has not, or not in time
)

// kindOf says what the outcome of an Enter tells (rule O3).
func verdictOf(err error) verdict {
	if err == nil || errors.Is(err, distributed.ErrHeld) || errors.Is(err, distributed.ErrRefused) {
		return answer
	}
	return silence
}

// observe is told of every exchange with the service.
func (j *judge) observe(x distributed.Exchange) {
	if x.Sent.IsZero() {
		j.answeredAtOnce()
		return
	}
	if verdictOf(x.Err) == answer {
		j.answered(x.Sent.Add(x.RTT), x.RTT)
		return
	}
	j.failed(x.Sent, time.Now(), x.Err)
}

// answeredAtOnce notes an answer that took no time, for which nobody should look at a clock while all is well. It came when the question
// was asked. That is noted before the question is closed: else whoever looks in between takes the Enter, which has not returned yet, for one
// that has waited since the answer before.
func (j *judge) answeredAtOnce() {
	if j.current.Load() != nil {
		j.answered(time.Now(), 0)
	} else if open := j.open.Load(); open != 0 {
		if open > j.answeredAt.Load() {
			j.answeredAt.Store(open)
		}
		j.open.Store(0)
	}
}

// answeredEnter notes the answer to an Enter, if the backend does not report its exchanges. How long it took
// stands for a round trip: there may have been several.
func (j *judge) answeredEnter(asked int64) {
	if j.observes {
		return
	}
	now := time.Now()
	j.answered(now, max(now.Sub(j.time(asked)), 1))
}

// unanswered notes that an Enter or a Refill got no answer. One whose caller ran out of time tells nothing, since that
// time may have been short, but is a reason to ask (rule O3).
func (j *judge) unanswered(ctx context.Context, sent time.Time, err error) {
	switch {
	case ctx.Err() != nil:
		j.mu.Lock()
		j.askSoon()
		j.mu.Unlock()
	case j.observes:
	case errors.Is(err, distributed.ErrUnavailable):
		j.failed(sent, time.Now(), err)
	}
}

// answered notes an answer. Any answer ends an outage.
func (j *judge) answered(at time.Time, rtt time.Duration) {
	now := j.clock(at)
	if now > j.answeredAt.Load() {
		j.answeredAt.Store(now)
	}
	if open := j.open.Load(); open != 0 && open <= now {
		j.open.Store(0)
	}
	if rtt > 0 {
		j.measured(int64(rtt))
	}
	if j.current.Load() == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if o := j.current.Load(); o != nil {
		j.current.Store(nil)
		if now := j.clock(time.Now()); now > j.answeredAt.Load() {
			j.answeredAt.Store(now) // what was asked before now may have failed for the old reason
		}
		j.end(o)
	}
}

// lastAnswer returns when the last answer came, zero if none has.
func (j *judge) lastAnswer() time.Time {
	at := j.answeredAt.Load()
	if at == 0 {
		return time.Time{}
	}
	return j.time(at)
}

// measured smooths the round trip. It follows a slower one faster than a quicker one. A lost update does no harm.
func (j *judge) measured(rtt int64) {
	was := j.rtt.Load()
	switch {
	case was == 0:
		j.rtt.Store(rtt)
	case rtt > was:
		j.rtt.Store(was + (rtt-was)/4)
	default:
		j.rtt.Store(was - (was-rtt)/8)
	}
}

// patience is how long a question may be unanswered before that counts: several round trips.
func (j *judge) patience() time.Duration {
	rtt := time.Duration(j.rtt.Load())
	if rtt == 0 {
		return min(max(j.ttl, shortestPatience), firstPatience)
	}
	return max(j.shortest(), min(patienceRTTs*rtt, max(2*rtt, longestPatience)))
}

// shortest is the least patience: long for any network, and short enough to notice an outage before a lease expires.
func (j *judge) shortest() time.Duration { return min(shortestPatience, j.ttl/4) }

// silence is how long nothing may be noticed during an outage, in which the backend is asked all the time, before it must
// be assumed that the process was stopped (rule O5).
func (j *judge) silence() time.Duration { return max(j.ttl/2, 3*j.pace()) }

// failed notes that what was asked then has got no answer by now. If it did not wait for long, that tells nothing, but is a
// reason to ask. An answer that has come since it was asked refutes it.
func (j *judge) failed(sent, now time.Time, err error) {
	if errors.Is(err, distributed.ErrClosed) {
		j.open.Store(0)
		return
	}
	quick := !timedOut(err)
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.clock(sent) < j.answeredAt.Load() || j.ctx.Err() != nil:
	case !quick && now.Sub(sent) < j.patience():
		j.askSoon()
	default:
		j.missed(sent, now, err, quick)
	}
}

// timedOut reports that err only says that somebody did not wait for longer.
func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	switch {
	case errors.Is(err, distributed.ErrUnreached):
		return false
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return true
	}
	return errors.As(err, &t) && t.Timeout()
}

// missed counts a failure. Those that were asked at the same time count as one: they tell of the same moment. The caller
// holds mu.
func (j *judge) missed(sent, now time.Time, err error, quick bool) {
	o := j.current.Load()
	switch {
	case o == nil:
		o = j.begin(nil, now, err)
	case sent.Before(o.next):
		return
	case o.broken(now, j.silence()):
		o = j.begin(o, now, err)
	}
	o.misses++
	o.quick, o.next = quick, now
	if !quick {
		o.next = sent.Add(j.shortest() / 4)
	}
	o.last.Store(&miss{known: now, err: err})
	if o.misses >= missesToDecide && !o.isAway() {
		j.decide(o)
	}
	j.start()
	j.poke()
}

// begin starts an outage, in place of another, which is broken. The caller holds mu.
func (j *judge) begin(broken *outage, now time.Time, err error) *outage {
	o := &outage{first: now, began: now, over: make(chan struct{})}
	o.last.Store(&miss{known: now, err: err})
	if broken != nil {
		o.first, o.misses = broken.first, broken.misses
		broken.follows = o
		o.decided.Store(broken.isAway())
	}
	j.current.Store(o)
	if broken != nil {
		j.end(broken)
	}
	for _, l := range j.listeners {
		l.suspected(o)
	}
	return o
}

// renew replaces an outage that is broken.
func (j *judge) renew(o *outage, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.current.Load() == o && o.broken(now, j.silence()) && j.ctx.Err() == nil {
		j.begin(o, now, o.last.Load().err)
	}
}

// goesOn reports that o goes on, as far as is known.
func (j *judge) goesOn(o *outage, now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.current.Load() == o && !o.broken(now, j.silence())
}

// end tells of the end of o. The caller holds mu.
func (j *judge) end(o *outage) {
	close(o.over)
	for _, l := range j.listeners {
		l.ended(o)
	}
}

// decide ends all questions under way. The caller holds mu.
func (j *judge) decide(o *outage) {
	o.decided.Store(true)
	for _, l := range j.listeners {
		l.away(o)
	}
	j.flights.cancel()
}

// suspect returns why it is to be doubted that the backend answers: it is in an outage, or has left something unanswered
// for longer than patience. Else nil.
func (j *judge) suspect(now time.Time) error {
	if o := j.current.Load(); o != nil {
		return o.cause()
	}
	open := j.open.Load()
	if open == 0 {
		return nil
	}
	j.mu.Lock()
	patience := j.patience()
	j.mu.Unlock()
	if silent := time.Duration(j.clock(now) - open); silent > patience {
		return distributed.Unavailable("", keyless.Errorf("no answer for %v", silent.Round(time.Millisecond)))
	}
	return nil
}
