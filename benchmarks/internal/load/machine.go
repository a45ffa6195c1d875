package load

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/server"
	"github.com/wllock/wllock/benchmarks/internal/slowlink"
	"github.com/wllock/wllock/benchmarks/internal/stats"
)

// Machine is what rounds run on.
type Machine struct {
	Stores map[server.Store]*server.Server
	// Proxies are those to one Redis and to PostgreSQL, where a scenario needs them. A file has none.
	Proxies map[server.Store]*slowlink.Proxy
}

// NewMachine starts stores, each once, and the proxies if some rounds are over a delayed link.
func NewMachine(ctx context.Context, stores []server.Store, delayed bool) (Machine, error) {
	m := Machine{Stores: make(map[server.Store]*server.Server), Proxies: make(map[server.Store]*slowlink.Proxy)}
	for _, s := range stores {
		if m.Stores[s] != nil {
			continue
		}
		if err := m.start(ctx, s, delayed && (s == server.Redis || s == server.Postgres)); err != nil {
			m.Stop()
			return Machine{}, err
		}
	}
	return m, nil
}

func (m Machine) start(ctx context.Context, s server.Store, delayed bool) error {
	store, err := server.Start(ctx, s)
	if err != nil {
		return err
	}
	m.Stores[s] = store
	if !delayed {
		return nil
	}
	proxy, err := slowlink.Start(host(store.Addr), Delay)
	if err == nil {
		m.Proxies[s] = proxy
	}
	return err
}

// Stop ends the proxies and the stores.
func (m Machine) Stop() {
	for _, p := range m.Proxies {
		p.Stop()
	}
	for _, s := range m.Stores {
		s.Stop()
	}
}

// addr returns that of a store over a link.
func (m Machine) addr(s server.Store, link Link) string {
	direct, proxy := m.Stores[s].Addr, m.Proxies[s]
	if link != Delayed || proxy == nil {
		return direct
	}
	return strings.Replace(direct, host(direct), proxy.Addr, 1)
}

// host returns the host and port of an address, which may be a URL.
func host(addr string) string {
	if u, err := url.Parse(addr); err == nil && u.Host != "" {
		return u.Host
	}
	return addr
}

// gauge is what is read at the start and the end of a measurement.
type gauge struct {
	at       time.Time
	commands map[string]int64
	own      time.Duration // CPU of this process
	servers  time.Duration // CPU of the store
	proxy    time.Duration // CPU of the proxy's thread, which is in own
	late     stats.Summary // since the last gauge, of the proxy to the store
}

func (m Machine) gauge(ctx context.Context, c contender.Contender) (gauge, error) {
	store := m.Stores[c.Store]
	commands, err := store.Commands(ctx)
	g := gauge{at: time.Now(), commands: commands, own: server.OwnCPU(), servers: store.CPU()}
	if c.Locks {
		g.servers += m.Stores[server.Redis].CPU()
	}
	for s, p := range m.Proxies {
		late, cpu := p.Late()
		g.proxy += cpu
		if s == c.Store {
			g.late = late
		}
	}
	return g, err
}

// account fills in the differences of the gauges.
func (m Machine) account(r *Round, c contender.Contender, link Link, before, after gauge) {
	r.Seconds = after.at.Sub(before.at).Seconds()
	r.OpsPerSecond = float64(r.Ops) / r.Seconds
	ops := float64(max(r.Ops, 1))
	r.CommandsPerOp = float64(c.Calls(after.commands)-c.Calls(before.commands)) / ops
	r.ProcessCPUPerOp = float64(after.own-before.own-(after.proxy-before.proxy)) / ops
	r.ServerCPUPerOp = float64(after.servers-before.servers) / ops
	if link == Delayed {
		r.ProxyLate = &after.late
	}
}

// monitorTime is how long each contender is watched.
const monitorTime = 100 * time.Millisecond

// CheckCommands runs a contender under MONITOR, contended and not, and compares the commands of its clients with those it
// declares: the count is then exact, although the server also counts the calls of scripts.
func (m Machine) CheckCommands(ctx context.Context, c contender.Contender) error {
	if c.Store != server.Redis && c.Store != server.Redlock {
		return nil
	}
	for _, keys := range []Keys{Hot, Own} {
		s := Scenario{Name: "check", Instances: 2, Workers: 2, Keys: keys}
		seen, err := m.Stores[c.Store].Monitor(ctx, func() error {
			_, err := m.Run(ctx, c, s, Loopback, monitorTime)
			return err
		})
		if err != nil {
			return fmt.Errorf("watch the commands of %s: %w", c.Name, err)
		}
		if err := compare(c, seen); err != nil {
			return err
		}
	}
	return nil
}

// ours are the commands of the harness itself.
var ours = []string{"flushall", "config", "info", "echo"}

func compare(c contender.Contender, seen server.Seen) error {
	for _, name := range slices.Sorted(maps.Keys(seen.Clients)) {
		// Commands that a client sends once per connection are not part of the steady state.
		if !slices.Contains(c.Commands, name) && !slices.Contains(ours, name) && name != "hello" && name != "client" {
			return fmt.Errorf("%s sends %q, which is not counted", c.Name, name)
		}
	}
	for _, name := range c.Commands {
		if seen.Scripts[name] > 0 {
			return fmt.Errorf("%s calls %q in scripts, too: it cannot be counted", c.Name, name)
		}
	}
	return nil
}

// audit compares what the database has with what was in it before the round, and with what buyers were told.
func (m Machine) audit(ctx context.Context, c contender.Contender, r *Round) error {
	b, err := m.Stores[c.Store].Audit(ctx)
	if err != nil {
		return fmt.Errorf("audit %s: %w", c.Name, err)
	}
	r.Books = &b
	r.Violations += distance(b.Sold+b.Left, server.Stock) + distance(b.Sold, r.Told)
	r.Fences, r.FencesFallen = b.Fenced, b.Fallen
	if c.Fenced {
		r.FencesFallen += b.Sold - b.Fenced // orders without a fence
	}
	return nil
}

func distance(a, b int64) int64 { return max(a-b, b-a) }
