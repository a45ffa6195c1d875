package redislock

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
)

// No part of a key leaves the process, whatever Redis and the client say.
func TestNoKeyLeavesWithRedaction(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := redistest.NewProxy(t, s.Addr)
	user := s.AddUser(t, "redis.md", "shop")
	rights := func(rules ...any) {
		s.Do(append([]any{"ACL", "SETUSER", "shop"}, rules...)...)
	}
	admin := s.Client()
	testlocker.Secrecy{
		System: "shop", TTL: 3 * time.Second,
		Open: func(t *testing.T, log *slog.Logger) distributed.Backend {
			return with(t, s.Client(user, func(o *redis.Options) { o.Addr = proxy.Addr }), WithSystem("shop"), WithLogger(log))
		},
		Hinders: map[string]func(*testing.T) func(){
			"no right to scripts": func(*testing.T) func() { rights("-evalsha"); return func() { rights("+evalsha") } },
			"no right to keys": func(*testing.T) func() {
				rights("resetkeys", "~other:*")
				return func() { rights("~shop:*", "~wllock:shop:*") }
			},
			"a cut": func(*testing.T) func() {
				proxy.Redirect("127.0.0.1:1")
				proxy.Cut()
				return func() { proxy.Redirect(s.Addr) }
			},
			"a full server": func(*testing.T) func() {
				s.Do("CONFIG", "SET", "maxmemory", "1")
				return func() { s.Do("CONFIG", "SET", "maxmemory", "0") }
			},
			"other data under the keys": func(t *testing.T) func() {
				ctx := t.Context()
				keys := admin.Keys(ctx, "shop:*").Val()
				for _, key := range keys {
					admin.Del(ctx, key)
					admin.LPush(ctx, key, "theirs")
				}
				return func() { admin.Del(ctx, keys...) }
			},
		},
	}.Run(t)
}
