package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

const (
	// fenceBlock is how many fences one exchange reserves: those of two microseconds. The next come when half are drawn, and do not go on from
	// there, so that is an exchange for 1000 callers.
	fenceBlock = 2000
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

// Refill implements driver.Driver.
func (d half) Refill(ctx context.Context, a *attempt) (driver.Block, error) {
	if !d.fences {
		return driver.Block{}, errors.ErrUnsupported
	}
	one, least, block := a.Wire.bid.Load(), uint64(0), driver.Block{Count: fenceBlock}
	if a.Shares() {
		block.Count = 1
	}
	for try := range fenceTries {
		block.First = max(d.nextFence(), least)
		word, err := one.reserve(ctx, block, &least)
		switch {
		case word == unavailable && !errors.Is(err, distributed.ErrRefused) && !one.over():
			parts.Pause(ctx, jittered(doubled(firstBackoff, try, longestBackoff))) // most failures are a busy server
		case err != nil:
			return driver.Block{}, err
		case word == refused || one.over(): // validity is looked at again after the exchange
			a.Gone()
			return driver.Block{}, distributed.ErrLeaseLost
		case word == granted:
			return block, nil
		}
	}
	return driver.Block{}, d.unavailable("refill", keyless.Errorf("the servers' fences keep changing"))
}

// reserve asks all servers to reserve a block; with First 0 it only asks what they know. least becomes what a majority would reserve.
//
// Fences grow strictly (rule Q7): rules.go says why. Neither our clock nor those of other servers matter, and a write that arrives after our
// vote has ended is refused.
func (a *bid) reserve(ctx context.Context, block driver.Block, least *uint64) (verdict, error) {
	from, to := "", ""
	if block.First > 0 {
		from, to = fence19(block.First), fence19(block.First+block.Count-1)
	}
	a.mu.Lock()
	c := a.call(fenceScript, a.letter(), 0, from, to, millis(max(fenceMemory, 4*a.ttl)))
	a.mu.Unlock()
	c.Args = slices.Insert(c.Args, conn.HeadLen+len(a.keys), any(fenceKey(a.key())))
	c.Script.Head(c.Args, len(a.keys)+1)
	var clocks []int64 // of the servers, as of when we began
	var wants []uint64 // what each that has our vote would reserve next
	tally := held{n: len(a.seats)}
	var p *poll
	p = a.b.poll("refill", func(k *ask) verdict {
		f := strings.Split(k.Reply, " ")
		if k.Err != nil || len(f) != 5 {
			f = make([]string, 5)
		}
		young, void := a.doubts(k.node.index, duration(f[3]))
		if tally.count(f[0], young, void); f[0] == "ok" && young {
			p.errs[k.node.index] = errYoung
		}
		if f[0] != "" {
			clock := number(f[2]) * int64(time.Microsecond)
			clocks = append(clocks, clock-int64(time.Since(a.b.began)))
			if f[0] != "other" {
				wants = append(wants, max(uint64(number(f[1]))+1, uint64(clock)+uint64(fenceLead)))
			}
		}
		return tally.judge(false)
	})
	p.then = func(p *poll) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(clocks) > 0 {
			a.b.clock.Store(slices.Sorted(slices.Values(clocks))[len(clocks)/2])
		}
		if p.verdict == higher {
			*least = max(*least, leastFence(len(a.seats), wants))
		}
	}
	a.toAll(c, p.done)
	return p.wait(ctx, time.Until(a.lasts()))
}

var errYoung = keyless.Errorf("it may have forgotten fences, and counts again when its data is older than the longest lease TTL")

// fenceKey is where a server keeps the last fence that it has reserved of a lock.
func fenceKey(key string) string { return helper("f:", key) }

// fence19 is a fence as the servers compare it.
func fence19(f uint64) string { return fmt.Sprintf("%019d", f) }

// nextFence is what a majority will most likely reserve: ahead of its clocks. 0: these are not known yet, so the servers have to be asked.
// Our own wall clock is not used, which may be set at any time.
func (b *Backend) nextFence() uint64 {
	clock := b.clock.Load()
	if clock == 0 {
		return 0
	}
	return uint64(clock) + uint64(time.Since(b.began)+fenceLead)
}
