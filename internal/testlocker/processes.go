package testlocker

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testscope"
)

// Processes are tests of a service whose holders and waiters are killed (-9), or stopped for longer than their leases. TestMain calls
// [Child].
type Processes struct {
	URL    string
	Open   Open
	TTL    time.Duration
	Notice time.Duration // how much later than T the service may free what a dead process has

	NoPermits bool // the service has none
}

// Run runs them all. Each case has a key of its own.
func (p Processes) Run(t *testing.T) {
	for of, limit := range map[string]int{"lock": 0, "permit": 2} {
		if limit > 0 && p.NoPermits {
			continue
		}
		for age, d := range map[string]time.Duration{"fresh": 0, "claimed": p.TTL * 3 / 4} {
			t.Run(fmt.Sprint("the holder of a ", age, " ", of, " is killed"), func(t *testing.T) { p.killedHolder(t, limit, d) })
		}
		t.Run(fmt.Sprint("the holder of a ", of, " is stopped"), func(t *testing.T) { p.stoppedHolder(t, min(limit, 1)) })
	}
	for what, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run("the first waiter is "+what, func(t *testing.T) { p.deadWaiter(t, signal) })
	}
}

func (p Processes) part(limit int) part {
	return part{URL: p.URL, Key: fmt.Sprint("shop:process:", time.Now().UnixNano()), TTL: p.TTL, Limit: limit}
}

func (p Processes) open(t *testing.T) distributed.Backend {
	t.Helper()
	b, err := p.Open(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// soon checks that something took no longer than a dead process may keep others waiting.
func (p Processes) soon(t *testing.T, start time.Time, what string) {
	t.Helper()
	took := time.Since(start)
	t.Logf("let in %v after %s, with a TTL of %v", took.Round(time.Millisecond), what, p.TTL)
	testscope.InTime(t, took, p.TTL+distributed.HeartbeatInterval(p.TTL)+p.Notice, "until the next one was let in")
}

// killedHolder: the next one in line follows within the lease of the dead one, with a greater fence; beside a permit's holder that lives.
func (p Processes) killedHolder(t *testing.T, limit int, age time.Duration) {
	t.Parallel()
	is, b := p.part(limit), p.open(t)
	dead := is.start(t)
	before, _ := strconv.ParseUint(dead.says("held"), 10, 64)
	var beside distributed.Lease
	if limit > 0 {
		beside = is.asker(t, b).Lease("beside", is.as)
	}
	next, after := is.asker(t, b).Place("next", is.as), is.asker(t, b).Place("after", is.as)
	time.Sleep(age)
	dead.kill()
	start := time.Now()
	l := Granted(t, next)
	p.soon(t, start, "the kill")
	exceeds(t, l, before)
	if len(after.Granted()) > 0 {
		t.Fatal("two were let in for one that was killed")
	}
	if beside != nil {
		if !beside.Healthy() {
			t.Fatal("a permit ended with the other one")
		}
		Release(t, beside)
	}
	Release(t, l)
	Release(t, Granted(t, after))
}

// stoppedHolder: it finds its lease lost when it wakes up, and a store that has seen the next fence refuses its late write.
func (p Processes) stoppedHolder(t *testing.T, limit int) {
	t.Parallel()
	is, b := p.part(limit), p.open(t)
	stopped := is.start(t)
	before, _ := strconv.ParseUint(stopped.says("held"), 10, 64)
	next := is.asker(t, b).Place("next", is.as)
	stopped.signal(syscall.SIGSTOP)
	l := Granted(t, next)
	exceeds(t, l, before)
	time.Sleep(p.TTL / 4)
	stopped.signal(syscall.SIGCONT)
	stopped.says("lost true false") // over by its clock, and not healthy
	Release(t, l)
}

// deadWaiter: the one behind it is let in all the same.
func (p Processes) deadWaiter(t *testing.T, signal syscall.Signal) {
	t.Parallel()
	is, b := p.part(0), p.open(t)
	l := is.asker(t, b).Lease("holder", is.as)
	dead := is.start(t)
	dead.says("queued")
	behind := is.asker(t, b).Place("behind", is.as)
	dead.signal(signal)
	Release(t, l)
	start := time.Now()
	l = Granted(t, behind)
	p.soon(t, start, "the release")
	Release(t, l)
}

func exceeds(t *testing.T, l distributed.Lease, before uint64) {
	t.Helper()
	if l == nil {
		t.Fatal("the place was lost")
	}
	if _, err := fenceAfter(before, l); err != nil {
		t.Fatal(err)
	}
}

func (p part) asker(t *testing.T, b distributed.Backend) Asker {
	return Asker{T: t, B: b, Key: p.Key, TTL: p.TTL}
}
