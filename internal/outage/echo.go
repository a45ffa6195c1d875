package outage

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

const (
	// quickGap is the pause between questions after a failure that took no time, such as a refused connection.
	quickGap = 20 * time.Millisecond
	// soonGap is the pause between questions for callers that ran out of time.
	soonGap = 100 * time.Millisecond
	// shortestPace and longestPace bound the pause between questions while the backend is away. All processes ask then, so
	// it is not short; and callers wait, so it is not long (rule O2).
	shortestPace, longestPace = 100 * time.Millisecond, 200 * time.Millisecond
	// longestIdle is the pause between questions while callers wait for grants and nothing else is exchanged.
	longestIdle = time.Second
	// someEchoes are how many questions are under way at a time before the decision, maxEchoes after it. They overlap, so
	// that each can wait for long.
	someEchoes, maxEchoes = missesToDecide, 8
	// slowPace bounds the pause between two of them while they hang.
	slowPace = 500 * time.Millisecond
	// echoLife is how long a question is waited for, in patiences. A late answer counts, and cutting a question short may
	// cost its connection.
	echoLife         = 2
	shortestEchoLife = 600 * time.Millisecond
)

// asking is the state of the goroutine that asks the backend. Guarded by judge.mu.
type asking struct {
	echoes   []*echo
	soon     bool          // the next one is due soon
	lastEcho time.Time     // when the last one was sent
	pause    time.Duration // until the next while the backend is away, drawn anew for each
}

// echo is a question that is under way.
type echo struct {
	sent   time.Time
	missed bool // it has been unanswered for longer than patience
}

// awaits notes that a caller begins (1) or ends (-1) to wait for a grant.
func (j *judge) awaits(n int64) {
	j.waiting.Add(n)
	j.needed()
}

// needed starts the goroutine if it does not run. Its caller has said before what for.
func (j *judge) needed() {
	if !j.running.Load() {
		j.mu.Lock()
		j.start()
		j.mu.Unlock()
	}
}

// start starts the goroutine unless it runs. It ends by itself. The caller holds mu.
func (j *judge) start() {
	if !j.running.Load() && j.ctx.Err() == nil {
		j.running.Store(true)
		j.wg.Go(j.run)
	}
}

// askSoon has the backend asked soon. The caller holds mu.
func (j *judge) askSoon() {
	j.soon = true
	j.start()
	j.poke()
}

// poke ends a pause of the goroutine.
func (j *judge) poke() {
	select {
	case j.wake <- struct{}{}:
	default: // one is pending
	}
}

func (j *judge) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		pause, ok := j.step(time.Now())
		if !ok {
			return
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-j.wake:
		case <-j.ctx.Done():
		}
	}
}

// step counts what has been unanswered for too long, asks if that is due, and returns when to look again. ok false: the
// goroutine ends. Who needs it then has either said so before, or finds that it does not run.
//
// running is false only while step looks who needs the goroutine: who says so later than that sees it, waits for mu and starts
// another one if this one ends. In between nothing here may call start, which would not know that this one goes on; so what is
// overdue, which does call it, is counted before.
func (j *judge) step(now time.Time) (pause time.Duration, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ctx.Err() != nil {
		j.running.Store(false)
		return 0, false
	}
	look := j.overdue(now)
	j.running.Store(false)
	due, needed := j.due(now)
	most := someEchoes
	if o := j.current.Load(); o != nil && o.isAway() {
		most = maxEchoes
	}
	if needed && len(j.echoes) < most {
		if !due.After(now) {
			j.ask(now)
			due = now.Add(j.gap())
		}
		look = earlier(look, due)
	}
	if look.IsZero() {
		if len(j.echoes) == 0 && !needed {
			return 0, false
		}
		look = now.Add(longestIdle) // the end of an echo comes first, and wakes us
	}
	j.running.Store(true)
	return max(look.Sub(now), time.Millisecond), true
}

// earlier returns the earlier of two times; a zero one is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// overdue counts the questions that have waited for longer than patience, and returns when the next will have. The caller
// holds mu.
func (j *judge) overdue(now time.Time) (next time.Time) {
	patience := j.patience()
	for _, e := range j.echoes {
		switch at := e.sent.Add(patience); {
		case e.missed:
		case at.After(now):
			next = earlier(next, at)
		default:
			j.silent(e, now, distributed.Unavailable("", keyless.Errorf("no answer within %v", patience)))
		}
	}
	return next
}

// due returns when the next question is to be asked, if one is needed. The caller holds mu.
func (j *judge) due(now time.Time) (at time.Time, needed bool) {
	open, last := j.open.Load(), j.base.Add(time.Duration(j.answeredAt.Load()))
	if j.lastEcho.After(last) {
		last = j.lastEcho
	}
	quiet := max(j.shortest(), 2*time.Duration(j.rtt.Load()))
	switch o := j.current.Load(); {
	case o != nil:
		return j.lastEcho.Add(j.gap()), true
	case j.soon:
		return j.lastEcho.Add(min(soonGap, quiet)), true
	case len(j.echoes) > 0:
		return j.lastEcho.Add(j.gap()), true
	case open != 0:
		return j.base.Add(time.Duration(open)).Add(quiet), true
	case j.entering.Load() > 0:
		return last.Add(quiet), true
	case j.waiting.Load() > 0:
		return last.Add(min(longestIdle, j.ttl/8)), true
	}
	return now, false
}

// gap is the pause between two questions while there is a reason to doubt. The caller holds mu.
func (j *judge) gap() time.Duration {
	o := j.current.Load()
	switch {
	case o == nil:
		return max(j.shortest(), time.Duration(j.rtt.Load())) / 2
	case o.isAway():
		return j.pause
	case o.quick:
		return min(quickGap, j.shortest()/2)
	}
	return j.patience() / 2
}

// pace is the longest pause between questions while the backend is away and hangs: they are evenly spread.
func (j *judge) pace() time.Duration {
	life := j.life()
	return max(j.quickPace(), min(life/someEchoes, slowPace), life/maxEchoes)
}

// quickPace is the same while they fail at once.
func (j *judge) quickPace() time.Duration { return min(max(j.ttl/10, shortestPace), longestPace) }

// life is how long a question is waited for.
func (j *judge) life() time.Duration { return max(echoLife*j.patience(), shortestEchoLife) }

// ask asks the backend. The caller holds mu.
func (j *judge) ask(now time.Time) {
	e := &echo{sent: now}
	j.echoes = append(j.echoes, e)
	j.lastEcho, j.soon = now, false
	pace := j.pace()
	if o := j.current.Load(); o != nil && o.quick {
		pace = j.quickPace()
	}
	j.pause = pace - rand.N(pace/4+1)
	life := j.life()
	j.wg.Go(func() {
		ctx, cancel := context.WithTimeout(j.ctx, life)
		defer cancel()
		err := j.question()(ctx)
		j.replied(e, time.Now(), err)
	})
}

// question is Echo, or Ping of a backend that has none.
func (j *judge) question() func(context.Context) error {
	if o, ok := j.backend.(distributed.Observable); ok {
		return o.Echo
	}
	return j.backend.Ping
}

// replied notes what came of a question. A backend that is Observable has reported that already, but not that it was the
// judge's: one that the backend itself has ended for want of an answer counts, however short its time-out is beside patience,
// because nobody else waits for longer. One that the judge has ended has been missed before.
func (j *judge) replied(e *echo, now time.Time, err error) {
	missed := j.forget(e)
	defer j.poke()
	switch {
	case errors.Is(err, distributed.ErrClosed):
		j.open.Store(0)
	case j.ctx.Err() != nil:
	case timedOut(err) && !missed:
		j.mu.Lock()
		defer j.mu.Unlock()
		j.silent(e, now, err)
	case j.observes:
	case err == nil:
		j.answered(now, max(now.Sub(e.sent), 1))
	case timedOut(err):
	case errors.Is(err, distributed.ErrUnavailable) && !errors.Is(err, distributed.ErrRefused):
		if !missed {
			j.failed(e.sent, now, err)
		}
	default: // it has answered something
		j.answered(now, 0)
	}
}

// forget takes a question off those under way, and reports whether it has been missed.
func (j *judge) forget(e *echo) (missed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.echoes = slices.DeleteFunc(j.echoes, func(other *echo) bool { return other == e })
	return e.missed
}

// silent counts a question without an answer, unless one has come to another since it was asked. The caller holds mu.
func (j *judge) silent(e *echo, now time.Time, err error) {
	e.missed = true
	if j.clock(e.sent) >= j.answeredAt.Load() {
		j.missed(e.sent, now, err, false)
	}
}
