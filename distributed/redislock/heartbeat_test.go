package redislock

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
)

// One call is for all places in a crowd. What it leaves, and what is refused to it, is asked place by place.
func TestPlacesShareAHeartbeat(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprint("refused ", refused), func(t *testing.T) {
			t.Parallel()
			s, b := openNew(t)
			type batchOnly struct{}
			ofBatch := context.WithValue(t.Context(), batchOnly{}, true) // the places send heartbeats of their own, too
			var together, alone atomic.Int32
			aroundCalls(b, func(ctx context.Context, next conn.Transport, calls []*conn.Call) {
				for _, c := range calls {
					switch {
					case ctx.Value(batchOnly{}) == nil:
					case c.Script == beatAllScript:
						together.Add(1)
						if refused {
							c.Err = redisError("NOPERM no permission")
							return
						}
					case c.Script == heartbeatScript:
						alone.Add(1)
					}
				}
				next.Do(ctx, calls...)
			})
			holder, waiter := newUser(t, b).lasting(time.Minute), newUser(t, b).lasting(time.Minute)
			var places []distributed.Place
			var batch []*attempt
			beat := func(a *attempt) any { return s.Do("HGET", a.Wire.keys[queueKey+1], waiter.name) }
			for i, how := range []func(*distributed.Request){exclusive, exclusive, exclusive, exclusive, shared} {
				key := fmt.Sprint(key(t), i)
				holder.lease(key)
				places = append(places, waiter.place(key, how))
				batch = append(batch, attemptBehind(places[i]))
			}
			before := []any{beat(batch[0]), beat(batch[3])}
			s.Do("ZREM", batch[1].Wire.keys[queueKey], waiter.name)
			s.Do("DEL", batch[2].Key)
			time.Sleep(2 * time.Millisecond)
			batch[0].Wire.node.sendBatch(ofBatch, slices.Clone(batch))
			require.EqualValues(t, 1, together.Load())
			require.EqualValues(t, map[bool]int{false: 3, true: 5}[refused], alone.Load())
			require.NotEqual(t, before[0], beat(batch[0]))
			require.NotEqual(t, before[1], beat(batch[3]))
			_, ok := <-places[1].Granted()
			require.False(t, ok, "it was not in the queue")
			release(t, granted(t, places[2]))
			for _, i := range []int{0, 3, 4} {
				require.Empty(t, places[i].Granted())
			}
		})
	}
}
