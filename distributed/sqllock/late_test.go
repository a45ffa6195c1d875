package sqllock

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// A try of an enter that was not answered may be carried out when the lock of the next try has expired and others have had it. If the answer to
// the next try comes late, a claim finds the lock, but the fence is that of before.
func TestALateAnswerBringsNoOldFence(t *testing.T) { // rule D6
	onServers(t, func(t *testing.T, d *database) {
		const key = "key"
		b, elsewhere := d.backend(t), d.over(d.connector)
		others, pool := elsewhere.backend(t), elsewhere.pool(t)
		free(t, enter(t, b, key)) // there is a row
		var late *statement
		var answered bool
		var last atomic.Uint64 // the fence of others
		over := make(chan struct{})
		d.wire.filtered(func(s *statement) error {
			switch asks := strings.Contains(s.text, "prior"); {
			case asks && late == nil:
				late = s
				return s.breaks(lostRequest)
			case asks && !answered:
				answered = true
				err := s.run()
				time.Sleep(distributed.ClaimWindow(ttl) * 4 / 5)
				return err
			case !asks && answered && last.Load() == 0: // a claim, or a removal
				between := acquired(t, others, key, lasting(time.Minute)) // when the lock has expired
				last.Store(fenceOf(t, between))
				free(t, between)
				var args []any
				for _, a := range late.args {
					args = append(args, a.Value)
				}
				_, err := pool.ExecContext(t.Context(), late.text, args...)
				require.NoError(t, err)
				var owner string
				ask(t, others, "SELECT owner FROM {locks}", &owner)
				require.NotEmpty(t, owner)
				defer close(over)
			}
			return s.run()
		})
		l, _, err := try(t.Context(), b, key, lasting(ttl))
		if err == nil {
			require.Greater(t, fenceOf(t, l), last.Load())
		} else {
			require.ErrorIs(t, err, distributed.ErrUnavailable)
		}
		<-over
	})
}
