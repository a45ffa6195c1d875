package etcdlock

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// A leader that was stopped while another one was elected answers keepalives when it comes back, before it learns of that. They do not
// count: the new leader knows nothing of them, and the holder is cut off before it could tell.
func TestALeaderThatWasStoppedProvesNothing(t *testing.T) {
	testscope.Long(t, "stops processes or servers, and waits")
	t.Parallel()
	c, prefix := newCluster(t), newPrefix()
	i := c.leader(t)
	proxy := testproc.NewProxy(t, c.addrs[i])
	b := open(t, proxy.Addr, prefix)
	other := open(t, strings.Join([]string{c.addrs[(i+1)%3], c.addrs[(i+2)%3]}, ","), prefix)
	l := asker(t, b, "k").Lease("a")
	p := asker(t, other, "k").Place("b", lasting(long))
	claimed(t, l)
	s := claimOf(l).s
	c.servers[i].Pause()
	last := *s.alive.Load().last.Load()
	time.Sleep(time.Until(last.Add(ttl * 8 / 10)))
	var answered atomic.Bool
	defer b.Observe(func(e distributed.Exchange) { answered.Store(answered.Load() || e.Err == nil) })()
	c.servers[i].Resume()
	for start := time.Now(); time.Since(start) < ttl && !answered.Load(); {
		time.Sleep(50 * time.Microsecond)
	}
	time.Sleep(time.Millisecond)
	proxy.Stall(true)
	next := granted(t, p)
	require.NotNil(t, next)
	t.Logf("let in at +%v, the lease lasted until +%v", time.Since(last), l.Until().Sub(last))
	require.True(t, distributed.Over(time.Now(), l.Until()), "beside the holder, for another %v", time.Until(l.Until()))
	release(t, next)
	proxy.Stall(false)
}

// A keepalive and the read that confirms it have to be of one term.
func TestAKeepaliveOfAnotherTermProvesNothing(t *testing.T) {
	t.Parallel()
	s, _, term := keptAlive(t)
	require.NoError(t, s.confirm(term))
	require.ErrorIs(t, s.confirm(term-1), errLeft)
}

// keptAlive returns a session whose lease is held, with another stream of its keepalives, which etcd has answered in this term.
func keptAlive(t *testing.T) (s *session, k *keepalives, term uint64) {
	t.Helper()
	s = claimOf(asker(t, onShared(t), "k").Lease("a")).s
	k = &keepalives{s: s}
	t.Cleanup(k.drop)
	_, term, err := k.exchange()
	require.NoError(t, err)
	return s, k, term
}

// noting notes when an answer has come.
type noting struct {
	pb.Lease_LeaseKeepAliveClient
	came time.Time
}

func (n *noting) Recv() (*pb.LeaseKeepAliveResponse, error) {
	got, err := n.Lease_LeaseKeepAliveClient.Recv()
	n.came = time.Now()
	return got, err
}

// A session lives from when its keepalive was sent, which is before the answer has come.
func TestAKeepaliveProvesFromItsSend(t *testing.T) {
	t.Parallel()
	s, k, _ := keptAlive(t)
	n := &noting{Lease_LeaseKeepAliveClient: k.stream}
	k.stream = n
	before := 0
	for range 5 { // the session sends some as well, perhaps just now
		require.NoError(t, k.try())
		if s.alive.Load().last.Load().Before(n.came) {
			before++
		}
	}
	require.Positive(t, before)
}
