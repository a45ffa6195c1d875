// Package outage holds the two policies for the time while the backend is away. Breaker, for FailClosed, makes calls fail
// at once. LocalOnly lets callers in without a lease.
//
//	judge     says whether a backend is away, from all that its answers and silences tell; one for all its Lockers
//	registry  finds the judge of a backend
//	echo      asks the backend while there is a reason to, for the judge
//	Flight    the context of an Enter: the judge's decision ends it
//	policy    what both policies share: the way to the judge and back
//	reporter  the log lines of an outage, and the status
//	Breaker   refuses Enter while the backend is away
//	LocalOnly grants degraded leases once every lease of others has expired
//
// Each policy is a Backend that wraps the real one. Stop ends it. Close is the real one's.
package outage

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// Config is what a policy is made of.
type Config struct {
	Backend distributed.Backend
	System  string
	TTL     time.Duration // of this Locker's leases
	// Longest is the longest TTL that any instance of the system uses, as far as its user has said so, 0 if not at all.
	Longest time.Duration
	Logger  *slog.Logger // must not block
}

// Refused is the error of a call that was refused because the backend is away. It Is distributed.ErrUnavailable.
type Refused struct {
	RetryAfter time.Duration // when it is worth trying again
	Cause      error         // what came of the last question to the backend
}

// Error implements error.
func (r *Refused) Error() string { return isAway + r.Cause.Error() }

const isAway = "backend is away: "

// Keyless implements keyless.Error.
func (r *Refused) Keyless() (text string, safe bool) {
	text, safe = keyless.Text(r.Cause)
	return isAway + text, safe
}

// Unwrap returns the cause, which Is distributed.ErrUnavailable.
func (r *Refused) Unwrap() error { return r.Cause }

// Status says whether locks can be acquired at the backend.
type Status struct {
	Available bool
	Since     time.Time // when that began
	Err       error     // why it is not available: it is away, or refuses
	Answered  time.Time // when the last answer came. Zero: none has, or the backend is in this process and no clock is read
}

// policy is what Breaker and LocalOnly share.
type policy struct {
	distributed.Backend
	judge  *judge
	report *reporter
	ttls   ttls
	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex    // guards all below, and the state of LocalOnly; taken after judge.mu
	canceled chan struct{} // closed while it is of no use to wait for a grant
	stopped  bool
	noting   *time.Timer
}

func (p *policy) init(c Config, l listener, learn time.Duration) {
	p.Backend, p.canceled = c.Backend, make(chan struct{})
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.report = newReporter(c)
	p.ttls.init(c, learn)
	p.judge = judgeOf(c.Backend, c.TTL)
	p.judge.join(l, c.TTL)
}

func (p *policy) stop(l listener) {
	p.mu.Lock()
	again := p.stopped
	p.stopped = true
	if p.noting != nil {
		p.noting.Stop()
	}
	p.mu.Unlock()
	if again {
		return
	}
	p.cancel()
	p.judge.leave(l)
	p.report.stop()
	p.wg.Wait()
}

// background runs f until it returns. The caller holds mu; Stop waits for f, which ends with ctx.
func (p *policy) background(f func()) {
	if !p.stopped {
		p.wg.Go(f)
	}
}

// Await implements tenure.Outage: a caller that waits for a grant is called away during an outage, to enter again. While
// anybody waits the backend is asked now and then, since such callers send nothing that could fail (rule O6).
func (p *policy) Await() (canceled <-chan struct{}) {
	p.judge.awaits(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.canceled
}

// Awaited implements tenure.Outage.
func (p *policy) Awaited() { p.judge.awaits(-1) }

// Status returns whether locks can be acquired at the backend, and since when.
func (p *policy) Status() Status {
	s := p.report.status()
	if o := p.judge.current.Load(); o != nil && o.isAway() {
		s = Status{Since: o.first, Err: o.cause()}
	}
	s.Answered = p.judge.lastAnswer()
	return s
}

// Suspect returns an error that Is ErrUnavailable if the backend has not answered lately what it was asked, else nil.
func (p *policy) Suspect() error { return p.judge.suspect(time.Now()) }

// Unreleased takes note of a lease whose release got no answer. true: the lines about an outage tell of it.
func (p *policy) Unreleased() bool {
	return p.report.follows(p.judge.current.Load() != nil, &p.report.consequences.unreleased, 0)
}

// Lost takes note of a lock that was lost. true: the lines about an outage tell of it.
func (p *policy) Lost() bool {
	return p.report.follows(p.judge.current.Load() != nil, &p.report.consequences.lost, lostLines)
}

// enter asks the backend. away: the decision that it is away has ended the question, or came with its failure; err is the
// last failure then.
func (p *policy) enter(ctx context.Context, now time.Time, req *distributed.Request) (lease distributed.Lease, place distributed.Place, away bool, err error) {
	asked, f := p.judge.asked(now), begin(ctx, p.judge)
	defer f.end() // also after a panic of the backend's
	p.note(f)
	lease, place, err = p.Backend.Enter(f, *req)
	return lease, place, p.outcome(f, asked, err), err
}

// ask asks the backend a question that the decision ends. now is when, as the caller has just read it.
func (p *policy) ask(ctx context.Context, now time.Time, question func(context.Context) error) (away bool, err error) {
	asked, f := p.judge.asked(now), begin(ctx, p.judge)
	defer f.end()
	err = question(f)
	return p.outcome(f, asked, err), err
}

// outcome notes what came of a question. away: the decision that the backend is away has ended it, or came with its failure.
func (p *policy) outcome(f *Flight, asked int64, err error) (away bool) {
	switch {
	case verdictOf(err) == answer:
		p.judge.answeredEnter(asked)
		p.report.answered(err)
	case f.Context.Err() == nil && !conclusive(err) && f.canceled(): // ctx may be f
		return true
	default:
		p.judge.unanswered(f.Context, p.judge.time(asked), err)
	}
	return false
}

// conclusive reports that err is not for want of an answer.
func conclusive(err error) bool {
	return errors.Is(err, distributed.ErrClosed) || errors.Is(err, distributed.ErrLeaseLost) || errors.Is(err, errors.ErrUnsupported)
}

// backendName is what the backend says of itself.
func backendName(b distributed.Backend) string {
	if s, ok := b.(interface{ String() string }); ok {
		return s.String()
	}
	return ""
}
