package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/redistest"
)

// moving refuses to give up some keys, as a node does whose slot is on its way to another.
type moving struct {
	transport
	keys string // what they begin with
}

func (m moving) do(ctx context.Context, calls ...*call) {
	m.transport.do(ctx, calls...)
	for _, c := range calls {
		if c.script == leaveScript && strings.HasPrefix(c.key(), m.keys) {
			c.reply, c.err = "", errors.New("TRYAGAIN")
		}
	}
}

// TestFailingErrandKeepsNoWorker: whatever came after a few that failed once waited until their leases were over.
func TestFailingErrandKeepsNoWorker(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	swapTransport(b, func(tr transport) transport { return moving{tr, key(t) + "stuck"} })
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
