package chaos

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/test/history"
)

// Faults that have no name in a history.
const (
	cut      = "cut"
	halfOpen = "half-open"
	lost     = "lost reply"
	slow     = "delay"
	stopped  = "server stop"
	killed   = "server kill"
	parted   = "partition"
)

// faults are what a run does, by the names under which it counts them. Each is done to a process, or to the service.
func (f *fleet) faults() map[string]func(i int) {
	all := map[string]func(i int){
		"kill of a holder":                f.killHolder,
		"kill of a waiter":                f.killWaiter,
		"kill":                            f.replace,
		"stop of a holder past its lease": f.pause,
		"stop":                            f.stop,
	}
	if len(f.servers) > 0 {
		maps.Copy(all, map[string]func(i int){cut: f.cut, halfOpen: f.silence, lost: f.lose, slow: f.slow, parted: f.part})
		if !f.here {
			all[stopped] = f.stopServer
		}
		if !f.here && !f.stays {
			all[killed] = f.killServer
		}
	}
	for name, do := range f.own {
		all[name] = func(int) { do(f, name) }
	}
	return all
}

// shuffled are the names of the faults in an order that the seed decides.
func (f *fleet) shuffled() []string {
	names := slices.Sorted(maps.Keys(f.faults()))
	f.rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// disturb does a fault, and waits until that is over.
func (f *fleet) disturb(name string) {
	f.t.Helper()
	f.faults()[name](f.rnd.IntN(len(f.procs)))
	f.done[name]++
	f.settle()
}

// during notes a fault that lasts for as long as do.
func (f *fleet) during(fault history.Fault, do func()) {
	fault.Since = history.Now()
	do()
	f.Note(fault)
}

// pause stops a holder between its read and its write, until another process has written.
func (f *fleet) pause(i int) {
	f.t.Helper()
	p := f.procs[i]
	key := f.dwell(p)
	p.Stop(func() {
		since := history.Now()
		f.await("the write of the next holder", func() {}, func(e history.Event, c *history.Call) bool {
			return c.Key == key && e.Process != p.Name && e.What == history.Wrote && e.At > since
		})
		p.Tell("go on")
	})
}

func (f *fleet) stop(i int) { f.procs[i].Stop(func() { time.Sleep(f.upTo(2 * f.task.TTL)) }) }

// killHolder kills a process between a read and a write.
func (f *fleet) killHolder(i int) {
	f.t.Helper()
	p := f.procs[i]
	key := f.dwell(p)
	time.Sleep(f.upTo(f.task.TTL)) // it renews its lease, or has not yet
	f.measure("killed holder", others(p, key))
	f.replace(i)
}

// killWaiter kills the process that is first in the backend's queue behind another one, which then goes on.
func (f *fleet) killWaiter(i int) {
	f.t.Helper()
	holder := f.procs[i]
	key := f.dwell(holder)
	var first history.Event
	f.await("a waiter", func() {}, func(history.Event, *history.Call) bool {
		for c, e := range f.places {
			if c.Key == queueOf(key) && c.Process != holder.Name && (first.At == 0 || e.At < first.At) {
				first = e
			}
		}
		return first.At > 0
	})
	f.replace(slices.IndexFunc(f.procs, func(p *process) bool { return p.Name == first.Process }))
	f.measure("dead waiter", others(holder, key))
	holder.Tell("go on")
}

// replace kills a process, wherever it is, and starts another.
func (f *fleet) replace(i int) {
	f.t.Helper()
	f.procs[i].Kill()
	require.NoError(f.t, f.procs[i].End())
	f.forget(f.procs[i])
	f.begin(i)
}

// on does something to all links of a process for some time.
func (f *fleet) on(i int, name string, begin, end func(*testproc.Proxy), meanwhile func()) {
	p := f.procs[i]
	f.during(history.Fault{Name: name, On: p.Name}, func() {
		for _, link := range p.links {
			begin(link)
		}
		meanwhile()
		for _, link := range p.links {
			end(link)
		}
	})
}

func (f *fleet) cut(i int) {
	f.on(i, cut, (*testproc.Proxy).Cut, func(*testproc.Proxy) {}, func() {})
}

func (f *fleet) slow(i int) {
	d := f.upTo(f.task.TTL / 8)
	f.on(i, slow, func(p *testproc.Proxy) { p.SetDelay(d) }, func(p *testproc.Proxy) { p.SetDelay(0) }, func() { time.Sleep(f.upTo(2 * f.task.TTL)) })
}

// silence leaves the connections of a holder half-open, until another process has entered, and for some time more.
func (f *fleet) silence(i int) {
	f.t.Helper()
	p := f.procs[i]
	key := f.dwell(p)
	f.on(i, halfOpen, func(l *testproc.Proxy) { l.Stall(true) }, func(l *testproc.Proxy) { l.Stall(false) }, func() {
		since := history.Now()
		f.measure("half-open connection", others(p, key))
		f.await("the next holder", func() {}, func(e history.Event, c *history.Call) bool {
			return c.Key == key && e.Process != p.Name && e.What == history.Held && e.At > since
		})
		p.Tell("go on")
		time.Sleep(f.upTo(f.task.TTL))
	})
	name := p.Name // p may have another process by then
	f.measure("connection is back", func(c *history.Call) bool { return isQueue(c) && c.Process == name })
}

// lose loses the reply to the next request for a lock, if one comes soon.
func (f *fleet) lose(i int) {
	link := f.procs[i].links[f.rnd.IntN(len(f.servers))]
	f.on(i, lost, func(*testproc.Proxy) {}, func(*testproc.Proxy) {}, func() {
		for link.LoseReply(cmp.Or(f.request, name)); !link.Lost() && f.rnd.IntN(40) > 0; {
			time.Sleep(tick)
		}
		link.SwallowReply("")
	})
}

func (f *fleet) stopServer(int) {
	some := f.few()
	f.away(stopped, some.each((*testproc.Server).Pause), some.each((*testproc.Server).Resume), f.upTo(2*f.task.TTL))
}

func (f *fleet) killServer(int) {
	some := f.few()
	f.away(killed, some.each((*testproc.Server).Kill), some.each((*testproc.Server).Restart), f.upTo(f.task.TTL))
	time.Sleep(f.counts)
}

// part has no process reach some servers.
func (f *fleet) part(int) {
	some := f.few()
	stall := func(on bool) func() {
		return func() {
			for _, p := range f.procs {
				for i := range some {
					p.links[i].Stall(on)
				}
			}
		}
	}
	f.away(parted, stall(true), stall(false), f.upTo(2*f.task.TTL))
}

// victims are servers, by their places in the list.
type victims map[int]*testproc.Server

// few are as many servers as the service can do without, or one.
func (f *fleet) few() victims {
	some := victims{}
	for _, i := range f.rnd.Perm(len(f.servers))[:max(1, f.minority)] {
		some[i] = f.servers[i]
	}
	return some
}

func (v victims) each(do func(*testproc.Server)) func() {
	return func() {
		for _, one := range v {
			do(one)
		}
	}
}

// away takes a server, or what else is the service, away for so long.
func (f *fleet) away(name string, begin, end func(), d time.Duration) {
	f.during(history.Fault{Name: name}, func() {
		if len(f.servers) > 1 {
			f.measureAll("server lost")
		}
		begin()
		time.Sleep(d)
		end()
	})
	f.measureAll("service is back")
}
