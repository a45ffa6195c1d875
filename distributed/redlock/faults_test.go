package redlock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

const faultTTL = time.Second

func openURL(url string) (distributed.Backend, error) { return Open(url) }

// url names the servers.
func (s *servers) url() string {
	var hosts []string
	for _, one := range s.all {
		hosts = append(hosts, one.Addr)
	}
	return "redlock://" + strings.Join(hosts, ",") + "?fences=quorum"
}

func TestProcesses(t *testing.T) {
	testscope.Long(t, "kills and stops processes, and waits for what they held")
	t.Parallel()
	testlocker.Processes{URL: start(t, 3).url(), Open: openURL, TTL: faultTTL, NoPermits: true}.Run(t)
}

// hasEnded reports what a lease tells its user: that it has expired, or that it was lost before, which lets others in.
func hasEnded(l distributed.Lease, now time.Time) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return distributed.Over(now, l.Until())
	}
}

// Two servers that vote for the holder lose their data, and a third has never heard of it: the three are a majority that would let
// in another. They count only after the longest TTL.
func TestServersThatForgetAreNoMajority(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*redistest.Server){
		"flushed":   func(one *redistest.Server) { one.Do("FLUSHALL") },
		"restarted": func(one *redistest.Server) { one.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			s := startFor(t, 5, ttl)
			holder, other := s.open(), s.open()
			for _, p := range s.proxies[3:] {
				p.SetHalfOpen(true) // 3 and 4 do not hear of the holder
			}
			l := leaseOf(t, holder, request("k", "a", lasting(ttl)))
			l.Abandon() // or a renewal would notice what was forgotten, and release the votes that are left
			for _, p := range s.proxies[3:] {
				p.SetHalfOpen(false)
			}
			for _, one := range s.all[1:3] {
				forget(one)
			}
			req := request("k", "b", lasting(ttl), noWait)
			for !hasEnded(l, time.Now()) {
				got, _, err := other.Enter(t.Context(), req)
				require.True(t, got == nil || hasEnded(l, time.Now()), "two holders")
				require.True(t, got != nil || err != nil)
				if got != nil { // it ended while we asked, and gave up the vote of the first server
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			require.Eventually(t, func() bool {
				got, _, _ := other.Enter(t.Context(), req)
				return got != nil
			}, ttl+patience, 20*time.Millisecond, "and after that they count")
		})
	}
}
