package redislock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
)

// TestHostedRedisAllowsWhatLocksNeed: with a user who has nothing of what hosted services refuse, locks have all that they can do, and ask for
// nothing else. Where INFO is refused as well, it is asked for, and not missed.
func TestHostedRedisAllowsWhatLocksNeed(t *testing.T) {
	t.Parallel()
	for info, refused := range map[string][]string{"+info": nil, "-info": {"info"}} {
		t.Run(info, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			b := with(t, s.Client(s.Hosted("shop", info)), WithSystem("shop"))
			require.NoError(t, b.Ping(t.Context()))
			for name, mode := range map[string]func(*distributed.Request){"exclusive": exclusive, "reader": shared, "permit": permit(1)} {
				key := "shop:product:" + name
				l := newUser(t, b).lease(key, mode)
				p := newUser(t, b).place(key)
				require.ErrorIs(t, newUser(t, b).fails(t.Context(), key, noWait), distributed.ErrHeld)
				time.Sleep(testTTL / 2) // heartbeats, claim
				require.NoError(t, l.Refill(t.Context()))
				passOn(t, l, p)
			}
			stuck := newUser(t, b).lease("shop:product:stuck")
			found := inspect(t, b, "shop:product:stuck")
			listed, _, err := b.List(t.Context(), "shop:product:stuck", "", 1)
			require.NoError(t, err)
			require.Len(t, listed, 1)
			p := newUser(t, b).place("shop:product:stuck")
			_, err = b.Break(t.Context(), found, "ops", "stuck")
			require.NoError(t, err)
			release(t, granted(t, p))
			require.ErrorIs(t, stuck.Release(t.Context()), distributed.ErrLeaseLost)

			run := distributed.Run{Key: "shop:cron:report", Instance: "a", Began: time.Now(), Result: distributed.RunOK}
			require.NoError(t, b.Record(t.Context(), run))
			runs, err := b.Runs(t.Context(), "shop:")
			require.NoError(t, err)
			require.Len(t, runs, 1)
			require.Equal(t, refused, refusedCommands(s))
		})
	}
}

// refusedCommands are those that a user of the server has asked for in vain.
func refusedCommands(s *redistest.Server) (all []string) {
	log, _ := s.Do("ACL", "LOG").([]any)
	for _, entry := range log {
		_, what, _ := strings.Cut(fmt.Sprint(entry), "object:")
		command, _, _ := strings.Cut(what, " ")
		all = append(all, command)
	}
	return all
}
