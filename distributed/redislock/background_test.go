package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/redislock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

// moving refuses to release some keys, like a node whose slot is moving to another.
type moving struct {
	conn.Transport
	keys string // what they begin with
}

func (m moving) Do(ctx context.Context, calls ...*conn.Call) {
	m.Transport.Do(ctx, calls...)
	for _, c := range calls {
		if c.Script == leaveScript && strings.HasPrefix(c.Key(), m.keys) {
			c.Reply, c.Err = "", errors.New("TRYAGAIN")
		}
	}
}

// TestFailingTaskKeepsNoWorker: tasks once waited behind a few failing ones until the leases of these had expired.
func TestFailingTaskKeepsNoWorker(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	swapTransport(b, func(tr conn.Transport) conn.Transport { return moving{tr, key(t) + "stuck"} })
	u := newUser(t, b).lasting(5 * time.Second)
	well := u.lease(key(t))
	for i := range 2 * maxWorkers {
		u.lease(fmt.Sprint(key(t), "stuck", i)).StartRelease()
		time.Sleep(5 * time.Millisecond) // not all in one exchange
	}
	start := time.Now()
	well.StartRelease()
	require.Eventually(t, func() bool { return s.Do("EXISTS", key(t)) == int64(0) }, patience, time.Millisecond)
	inTime(t, "released", time.Since(start), 0)
}
