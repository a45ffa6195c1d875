package redislock

import (
	"context"
	"sync"
	"time"
)

// maxLanes is how many exchanges of single calls may be under way together before calls share one. Up to then each
// goes straight through on a connection of its own, so a caller among few never waits for another's answer.
const maxLanes = 8

// fairLoad is how many calls a lane takes at least, if there are as many. It takes no more than its share, or else
// one lane ends up with all of them and server and client wait for each other in turn.
const fairLoad = 16

// group lets single calls share pipelines (group commit). While all lanes are busy calls gather; the one whose
// exchange ends passes its lane to a fair share of them, which go out in one pipeline. There is no goroutine for this: a
// call is carried by its own caller or by another one's. Of a share the one with the latest deadline carries, so that
// nobody is kept longer than that.
//
// The AutoPipeline of go-redis would do the same (BenchmarkSharing has them side by side), but its callers wait past
// the deadline of their context until the connection times out, and one connection, when ordered, carries all.
type group struct {
	transport

	mu      sync.Mutex
	busy    int          // guarded by mu; lanes in use
	waiting []*passenger // guarded by mu; none while a lane is free

	passengers sync.Pool // of *passenger
}

// passenger is a call that waits for a lane, on behalf of its caller. It is used again once its caller has the answer:
// whoever carries it touches it last to wake that caller.
type passenger struct {
	call call      // a copy: its caller may have gone, or ask again, when the answer comes
	by   time.Time // its caller's deadline
	// wake is sent one message, by the one who took the passenger out of waiting: the passengers it is to carry, itself
	// among them, or none: it was carried, and call has its answer.
	wake  chan []*passenger
	timer *time.Timer // for by
}

// do implements transport. Several calls at once are a pipeline by themselves.
func (g *group) do(ctx context.Context, calls ...*call) {
	if len(calls) != 1 {
		g.transport.do(ctx, calls...)
		return
	}
	c := calls[0]
	g.mu.Lock()
	if g.busy < maxLanes {
		g.busy++
		g.mu.Unlock()
		g.transport.do(ctx, c)
		g.next()
		return
	}
	by, _ := ctx.Deadline() // ours always have one
	p := g.passenger(c, by)
	g.waiting = append(g.waiting, p)
	g.mu.Unlock()
	c.reply, c.err = g.ride(ctx, p)
}

func (g *group) passenger(c *call, by time.Time) *passenger {
	p, ok := g.passengers.Get().(*passenger)
	if ok {
		p.timer.Reset(time.Until(by))
	} else {
		p = &passenger{wake: make(chan []*passenger, 1), timer: time.NewTimer(time.Until(by))}
	}
	p.call, p.by = *c, by
	return p
}

// ride waits until p was carried, carries, or gives up.
func (g *group) ride(ctx context.Context, p *passenger) (string, error) {
	select {
	case load := <-p.wake:
		return g.arrive(p, load)
	case <-p.timer.C:
	case <-ctx.Done():
		p.timer.Stop()
	}
	if !g.withdraw(p) {
		// Taken at the same moment. As the driver we must see the others off, and have an answer after all; as one of
		// those carried we leave the answer to nobody.
		select {
		case load := <-p.wake:
			return g.arrive(p, load)
		default:
		}
	}
	return "", context.DeadlineExceeded
}

// arrive is what a passenger does that was woken. An empty load was carried by another.
func (g *group) arrive(p *passenger, load []*passenger) (string, error) {
	if len(load) > 0 {
		g.carry(p, load)
	}
	reply, err := p.call.reply, p.call.err
	p.timer.Stop()
	p.call = call{}
	g.passengers.Put(p)
	return reply, err
}

// withdraw takes p out of waiting; false if somebody did so before.
func (g *group) withdraw(p *passenger) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.waiting {
		if w == p {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// carry sends a load in one pipeline, wakes the others and passes the lane on.
func (g *group) carry(driver *passenger, load []*passenger) {
	calls := make([]*call, len(load))
	for i, p := range load {
		calls[i] = &p.call
	}
	g.transport.do(by{context.Background(), driver.by}, calls...) // no single caller's end may break it off
	for _, p := range load {
		if p != driver {
			p.wake <- nil
		}
	}
	g.next()
}

// next passes a lane on to those who gathered, or gives it up.
func (g *group) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), max(len(g.waiting)/maxLanes, fairLoad), maxBatch)
	if n == 0 {
		g.busy--
		return
	}
	load := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	driver := load[0]
	for _, p := range load {
		if p.by.After(driver.by) {
			driver = p
		}
	}
	driver.wake <- load
}
