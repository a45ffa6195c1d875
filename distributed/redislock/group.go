package redislock

import (
	"context"
	"sync"
	"time"
)

// maxLanes is how many exchanges of single calls may be under way together, with one node, before calls share one. Up to
// then each goes straight through on a connection of its own, so a caller among few never waits for another's answer.
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
//
// Each node of a cluster has lanes of its own, or one that hangs would soon have them all.
type group struct {
	transport
	lanes // of a single server, and of what is asked before a cluster is known

	nodesMu sync.Mutex
	nodes   map[string]*lanes // guarded by nodesMu; of a cluster, by address

	passengers sync.Pool // of *passenger
}

// lanes are the exchanges under way with one node, and those who wait for one.
type lanes struct {
	mu      sync.Mutex
	busy    int          // guarded by mu; lanes in use
	waiting []*passenger // guarded by mu; none while a lane is free
}

// passenger is a call that waits for a lane, on behalf of its caller. It is used again once its caller has the answer:
// whoever carries it touches it last to wake that caller.
type passenger struct {
	lanes *lanes    // it waits for one of these
	call  call      // a copy: its caller may have gone, or ask again, when the answer comes
	by    time.Time // its caller's deadline
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
	l := g.to(g.node(ctx, c.key()))
	l.mu.Lock()
	if l.busy < maxLanes {
		l.busy++
		l.mu.Unlock()
		g.transport.do(ctx, c)
		l.next()
		return
	}
	by, _ := ctx.Deadline() // ours always have one
	p := g.passenger(l, c, by)
	l.waiting = append(l.waiting, p)
	l.mu.Unlock()
	c.reply, c.err = g.ride(ctx, p)
}

// to returns the lanes to a node.
func (g *group) to(name string) *lanes {
	if name == "" {
		return &g.lanes
	}
	g.nodesMu.Lock()
	defer g.nodesMu.Unlock()
	l := g.nodes[name]
	if l == nil {
		if g.nodes == nil {
			g.nodes = make(map[string]*lanes)
		}
		l = new(lanes)
		g.nodes[name] = l
	}
	return l
}

func (g *group) passenger(l *lanes, c *call, by time.Time) *passenger {
	p, ok := g.passengers.Get().(*passenger)
	if ok {
		p.timer.Reset(time.Until(by))
	} else {
		p = &passenger{wake: make(chan []*passenger, 1), timer: time.NewTimer(time.Until(by))}
	}
	p.lanes, p.call, p.by = l, *c, by
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
	if !p.lanes.withdraw(p) {
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
func (l *lanes) withdraw(p *passenger) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range l.waiting {
		if w == p {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
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
	driver.lanes.next()
}

// next passes a lane on to those who gathered, or gives it up.
func (l *lanes) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), max(len(l.waiting)/maxLanes, fairLoad), maxBatch)
	if n == 0 {
		l.busy--
		return
	}
	load := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	driver := load[0]
	for _, p := range load {
		if p.by.After(driver.by) {
			driver = p
		}
	}
	driver.wake <- load
}
