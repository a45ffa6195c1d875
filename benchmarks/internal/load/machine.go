package load

import (
	"context"
	"net/url"
	"strings"

	"github.com/wllock/wllock/benchmarks/internal/server"
	"github.com/wllock/wllock/benchmarks/internal/slowlink"
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
