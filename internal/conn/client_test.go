package conn

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// There is a connection for each exchange that may be under way, for one that finds none waits past its deadline; or as many as the
// caller's limit leaves, of which callers do not take the last two.
func TestConnectionsAreEnoughOrTheCallersLimit(t *testing.T) {
	c := Config{Pipelines: 20}
	for _, test := range []struct{ limit, pool, callers int }{
		{0, MaxSlots + 20, MaxSlots}, {100, 100, MaxSlots}, {5, 5, 3}, {1, fewestConns, 1},
	} {
		one := Single(&redis.Options{PoolSize: 1, MaxActiveConns: test.limit}, c).(*goRedis)
		several := cluster(&redis.ClusterOptions{Addrs: []string{"a:1"}, PoolSize: 1, MaxActiveConns: test.limit}, c)
		o, of := one.client.(*redis.Client).Options(), several.client.(*redis.ClusterClient).Options()
		require.Equal(t, []int{test.pool, test.pool, 0}, []int{o.PoolSize, o.MaxConcurrentDials, o.MaxActiveConns})
		require.Equal(t, []int{test.pool, test.pool, 0}, []int{of.PoolSize, of.MaxConcurrentDials, of.MaxActiveConns})
		for _, g := range []*goRedis{one, several} {
			require.Equal(t, room{test.callers, test.pool < MaxSlots+20}, g.room)
			require.NoError(t, g.client.Close())
		}
	}
}
