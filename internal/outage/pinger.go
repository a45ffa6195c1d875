package outage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// pinger is the part that both policies share: the goroutine that pings the backend, and the callers that wait for a
// grant. The goroutine runs only while the policy needs it, and ends by itself.
type pinger struct {
	// next returns how long to wait until the next ping (0: it is due), when the last one ended that long ago; needed
	// false: the goroutine ends. Called under mu.
	next func(sinceLast time.Duration) (pause time.Duration, needed bool)
	// ping asks the backend and notes what that says. Called without mu.
	ping func()

	waiting atomic.Int64    // callers that wait for a grant
	wake    chan struct{}   // holds one; ends a pause
	ctx     context.Context // ends with Stop
	cancel  context.CancelFunc
	wg      sync.WaitGroup // the goroutine; Add under mu, unless ctx has ended

	mu       sync.Mutex    // guards all below and the state of the policy
	canceled chan struct{} // closed while it is of no use to wait for a grant
	running  bool          // the goroutine runs
	soon     bool          // the next ping is due soon
}

func (p *pinger) init(next func(time.Duration) (time.Duration, bool), ping func()) {
	p.next, p.ping = next, ping
	p.wake, p.canceled = make(chan struct{}, 1), make(chan struct{})
	p.ctx, p.cancel = context.WithCancel(context.Background())
}

// Await implements tenure.Outage: a caller that waits for a grant is called away during an outage, to enter again. While
// anybody waits the backend is pinged, since such callers send nothing that could fail (rule O6).
func (p *pinger) Await() (canceled <-chan struct{}) {
	p.waiting.Add(1) // before next, under mu, looks at it for the last time; or else running is false below
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start()
	return p.canceled
}

// Awaited implements tenure.Outage.
func (p *pinger) Awaited() { p.waiting.Add(-1) }

// Stop ends the goroutine and waits for it. The backend stays open.
func (p *pinger) Stop() {
	p.mu.Lock()
	p.cancel() // under mu: either start finds it, or Wait the goroutine
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *pinger) stopped() bool { return p.ctx.Err() != nil }

// start starts the goroutine unless it runs. The caller holds mu.
func (p *pinger) start() {
	if !p.running && !p.stopped() {
		p.running = true
		p.wg.Go(p.run)
	}
}

// checkSoon has the backend pinged soon. The caller holds mu.
func (p *pinger) checkSoon() {
	p.soon = true
	p.start()
	select {
	case p.wake <- struct{}{}:
	default: // one is pending
	}
}

// checkAfter has the backend pinged soon if the caller ran out of time before its Enter was answered, which is no evidence
// (rule O3). Without a ping, callers that never wait as long as the backend takes to fail would not notice an outage.
func (p *pinger) checkAfter(ctx context.Context) {
	if ctx.Err() == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checkSoon()
}

func (p *pinger) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for last := time.Now(); ; {
		pause, ok := p.plan(last)
		switch {
		case !ok:
			return
		case pause <= 0:
			p.ping()
			last = time.Now()
			continue
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-p.wake: // at worst left from a check that has been made
		case <-p.ctx.Done():
			return
		}
	}
}

// plan returns the pause before the next ping, and takes soon when that is due. With ok false the goroutine ends; a caller
// that needs it has either said so under mu before, or finds that it does not run.
func (p *pinger) plan(last time.Time) (pause time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pause, needed := p.next(time.Since(last))
	p.running = needed && !p.stopped()
	if pause <= 0 {
		p.soon = false
	}
	return pause, p.running
}
