package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

const (
	// fenceBlock is how many fences one exchange reserves: those of a microsecond.
	fenceBlock = 1000
	// fenceMemory is how long a server remembers the last fence of a key after its clock has passed that, or 4 T if that is longer: by
	// so much its clock may be set back. Then the clock makes them grow.
	fenceMemory = time.Minute
	// fenceLead is by how much fences are ahead of the servers' clocks, which go on while the question is on its way, and differ. It is
	// always the same, so that fences grow with the clock even beside a server that has lost its data.
	fenceLead = time.Second
	// fenceTries bounds the exchanges of one Refill. The second knows the largest that a majority has, so it succeeds unless
	// the lease is lost; more are for servers that come back in between.
	fenceTries = 5
)

// NextFence implements distributed.Lease.
func (l *lease) NextFence() (uint64, bool) {
	fence, ok, _ := l.fences.Draw()
	return fence, ok
}

// Refill implements distributed.Lease.
func (l *lease) Refill(ctx context.Context) error {
	if !l.a.b.fences {
		return errors.ErrUnsupported
	}
	return l.fences.Refill(ctx, func() (first, count uint64, err error) { return l.refill(ctx) })
}

// refill reserves a block.
//
// Fences grow strictly (rule Q7). A block [first, last] is used only after a majority of servers has written last, each while it had
// our vote and knew of no fence from first on. The next holder's block is written by a majority as well, and one server is in
// both: there our write came before our vote ended, that before the next holder's vote, and that before its write, which was
// accepted only because its first is larger than our last; or, if the server has forgotten that, larger than its clock, which had
// passed our last by then. So neither our clock nor those of other servers matter. A write that arrives after our vote has ended is
// refused.
func (l *lease) refill(ctx context.Context) (first, count uint64, err error) {
	b := l.a.b
	if count = fenceBlock; l.fences.IsShared() {
		count = 1
	}
	least := uint64(0)
	for try := range fenceTries {
		first = max(b.nextFence(), least)
		word, err := l.reserve(ctx, first, count, &least)
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(err, distributed.ErrUnavailable) && !errors.Is(err, distributed.ErrRefused) && !l.over():
			parts.Pause(ctx, jittered(doubled(firstBackoff, try, longestBackoff))) // most failures are a busy server
		case err != nil:
			return 0, 0, err
		case word == refused || distributed.Over(time.Now(), l.Until()): // validity is looked at again after the exchange
			l.End()
			return 0, 0, distributed.ErrLeaseLost
		case word == granted:
			return first, count, nil
		}
	}
	return 0, 0, b.unavailable("refill", keyless.Errorf("the servers' fences keep changing"))
}

// reserve asks all servers to reserve a block; first 0 only asks what they know. least becomes what a majority would reserve.
func (l *lease) reserve(ctx context.Context, first, count uint64, least *uint64) (verdict, error) {
	b := l.a.b
	from, to := "", ""
	if first > 0 {
		from, to = fence19(first), fence19(first+count-1)
	}
	keep := max(fenceMemory, 4*l.a.ttl)
	c := l.a.call(fenceScript, l.letter(), 0, from, to, millis(keep))
	args := slices.Insert(slices.Clone(c.Args), conn.HeadLen+len(l.a.keys), any(fenceKey(l.a.key())))
	c.Script.Head(args, len(l.a.keys)+1)
	c.Args = args
	v := &fenceVote{l: l, decided: make(chan struct{}), sent: time.Now(), errs: make([]error, len(b.nodes)), tally: fenceTally{n: len(b.nodes)}}
	for _, n := range b.nodes {
		n.send(l.a.question(c, v.answered))
	}
	select {
	case <-v.decided:
		*least = max(*least, v.least)
		return v.verdict, v.err
	case <-ctx.Done():
		return 0, distributed.Unavailable("redlock: refill", ctx.Err())
	}
}

// fenceKey is where a server keeps the last fence that it has reserved of a lock.
func fenceKey(key string) string { return helper("f:", key) }

// fence19 is a fence as the servers compare it.
func fence19(f uint64) string { return fmt.Sprintf("%019d", f) }

// fenceVote counts the answers to one reservation.
type fenceVote struct {
	l    *lease
	sent time.Time

	mu      sync.Mutex
	tally   fenceTally // guarded by mu
	clocks  []int64    // guarded by mu; of the servers, as of when we began
	wants   []uint64   // guarded by mu; what each that has our vote would reserve next
	errs    []error    // guarded by mu
	verdict verdict    // guarded by mu until decided is closed
	decided chan struct{}
	least   uint64 // valid once decided is closed, with higher
	err     error  // likewise, with unavailable
}

func (v *fenceVote) answered(k *ask) {
	b, a := v.l.a.b, v.l.a
	f := strings.Split(k.Reply, " ")
	if k.Err != nil || len(f) != 5 {
		f = []string{"", "", "", "", ""}
	}
	young, void := a.doubts(k.node.index, duration(f[3]))
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tally.count(f[0], young, void)
	if v.errs[k.node.index] = k.Err; f[0] == "ok" && young {
		v.errs[k.node.index] = errYoung
	}
	if f[0] != "" {
		clock := number(f[2]) * int64(time.Microsecond)
		v.clocks = append(v.clocks, clock-int64(time.Since(b.began)))
		if f[0] != "other" {
			v.wants = append(v.wants, max(uint64(number(f[1]))+1, uint64(clock)+uint64(fenceLead)))
		}
	}
	v.decide(b)
}

var errYoung = keyless.Errorf("it may have forgotten fences, and counts when it has its data for the longest lease TTL")

// decide looks whether the outcome is known. The caller holds mu.
func (v *fenceVote) decide(b *Backend) {
	if v.verdict != pending {
		return
	}
	switch v.verdict = v.tally.judge(); v.verdict {
	case pending:
		return
	case higher:
		v.least = leastFence(len(b.nodes), v.wants)
	case unavailable:
		v.err = b.unavailable("refill", b.failures(v.errs))
	}
	if len(v.clocks) > 0 {
		slices.Sort(v.clocks)
		b.clock.Store(v.clocks[len(v.clocks)/2])
	}
	b.exchanged("refill", v.sent, v.err)
	close(v.decided)
}

// nextFence is what a majority will most likely reserve: ahead of its clocks. 0: these are not known yet, so the servers have to be asked.
// Our own wall clock is not used, which may be set at any time.
func (b *Backend) nextFence() uint64 {
	clock := b.clock.Load()
	if clock == 0 {
		return 0
	}
	return uint64(clock) + uint64(time.Since(b.began)+fenceLead)
}
