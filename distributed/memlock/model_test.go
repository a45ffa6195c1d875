package memlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testseed"
)

// check checks the invariants of the server side and returns how many keys it knows.
func check(t *testing.T, b *Backend) (keys int) {
	t.Helper()
	for i := range b.shards {
		s := &b.shards[i]
		locked(s, func() {
			keys += len(s.entries)
			items := 0
			for key, e := range s.entries {
				require.Equal(t, key, e.key)
				require.NotEmpty(t, e.owners, "an entry has an owner")
				for slot, l := range e.owners {
					items++
					require.Same(t, e, l.entry)
					require.Equal(t, slot, l.slot)
					require.Equal(t, owner, l.state)
					require.True(t, slot == 0 || l.mode == distributed.Shared && e.owners[0].mode == distributed.Shared)
				}
				for p := e.first; p != nil; p = p.next {
					require.Same(t, e, p.entry)
					require.Equal(t, queued, p.state)
					require.True(t, p.next != nil || e.last == p)
				}
				require.False(t, e.first != nil && e.admits(e.first.mode, e.first.limit), "the first of the queue cannot be let in")
			}
			require.Equal(t, items, s.expiry.Len(), "each owner has its end, and nobody else has")
		})
	}
	return keys
}

// The invariants hold after each step of any sequence of calls, and nothing is left in the end.
func TestInvariants(t *testing.T) {
	testseed.Each(t, 12, func(seed uint64) {
		synctest.Test(t, func(t *testing.T) { stir(t, rand.New(rand.NewPCG(seed, 0))) })
	})
}

func stir(t *testing.T, rnd *rand.Rand) {
	ctx, b := context.Background(), New()
	const ttl = time.Second
	var places []distributed.Place
	var leases []distributed.Lease
	lease := func() distributed.Lease { return leases[rnd.IntN(len(leases))] }
	for range 500 {
		req := distributed.Request{
			Key: fmt.Sprint("key-", rnd.IntN(3)), Instance: fmt.Sprint("instance-", rnd.IntN(5)), TTL: ttl,
			Mode: distributed.Mode(rnd.IntN(2)), NoWait: rnd.IntN(4) == 0,
		}
		if req.Mode == distributed.Shared {
			req.Limit = rnd.IntN(4) // 0: a plain reader
		}
		switch op := rnd.IntN(20); {
		case op < 8:
			if op < 4 && len(leases) > 0 {
				req.Prev = lease() // of any key and instance
			}
			if l, p, _ := b.Enter(ctx, req); l != nil {
				leases = append(leases, l)
			} else if p != nil {
				places = append(places, p)
			}
		case op < 11 && len(leases) > 0:
			_ = lease().Release(ctx)
		case op < 12 && len(leases) > 0:
			lease().Abandon()
		case op < 14 && len(places) > 0:
			_ = places[rnd.IntN(len(places))].Leave(ctx)
		case op < 16 && len(places) > 0:
			select {
			case l, ok := <-places[rnd.IntN(len(places))].Granted():
				if ok {
					leases = append(leases, l)
				}
			default:
			}
		case op < 17:
			b.Expire(req.Key)
		case op < 18:
			b.Partition(rnd.IntN(3) == 0)
		default:
			time.Sleep(time.Duration(rnd.Int64N(int64(ttl) / 3)))
			synctest.Wait()
		}
		check(t, b)
	}
	b.Partition(false)
	for _, p := range places {
		require.NoError(t, p.Leave(ctx))
	}
	for _, l := range leases {
		_ = l.Release(ctx)
	}
	require.Zero(t, check(t, b), "all was left and released")
	require.NoError(t, b.Close())
}

func TestMemoryReturns(t *testing.T) {
	ctx, b := context.Background(), New()
	defer b.Close()
	const keys = 3 * roomyMap * shardCount / 2 // enough for every map to grow out of its first size
	leases := make([]distributed.Lease, keys)
	for i := range leases {
		leases[i], _, _ = b.Enter(ctx, distributed.Request{Key: fmt.Sprint(i), Instance: "a", TTL: time.Minute})
	}
	require.Equal(t, keys, check(t, b))
	for _, l := range leases {
		require.NoError(t, l.Release(ctx))
	}
	require.Zero(t, check(t, b))
	for i := range b.shards {
		require.LessOrEqual(t, b.shards[i].most, roomyMap, "the map that has grown is replaced")
	}
}
