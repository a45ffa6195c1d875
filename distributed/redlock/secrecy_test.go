package redlock

import (
	"log/slog"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// No part of a key leaves the process, whatever the servers and the clients say.
func TestNoKeyLeavesWithRedaction(t *testing.T) {
	testscope.Long(t, "takes rights and connections away")
	s := start(t, 3)
	cut := func(on bool) {
		for i, p := range s.proxies {
			if on {
				p.Redirect("127.0.0.1:1")
				p.Cut()
			} else {
				p.Redirect(s.all[i].Addr)
			}
		}
	}
	testlocker.Secrecy{
		System: "shop", TTL: 3 * time.Second,
		Open: func(_ *testing.T, log *slog.Logger) distributed.Backend { return s.open(WithLogger(log)) },
		Hinders: map[string]func(*testing.T) func(){
			"a cut": func(*testing.T) func() { cut(true); return func() { cut(false) } },
			"no right to scripts": func(*testing.T) func() {
				s.do("ACL", "SETUSER", "default", "-evalsha")
				return func() { s.do("ACL", "SETUSER", "default", "+evalsha") }
			},
			"full servers": func(*testing.T) func() {
				s.do("CONFIG", "SET", "maxmemory", "1")
				return func() { s.do("CONFIG", "SET", "maxmemory", "0") }
			},
		},
	}.Run(t)
}
