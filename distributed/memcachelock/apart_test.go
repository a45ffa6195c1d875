package memcachelock

import (
	"encoding/json"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/dbtest"
)

// TestAnotherClientCanDoEverything: memcached has no users of parts, so that whoever reaches the server ends, takes, starves and gives away
// any lock.
func TestAnotherClientCanDoEverything(t *testing.T) {
	t.Parallel()
	server := dbtest.Memcached(t)
	b, other, shop := open(t, server.Addr), open(t, server.Addr), client(t, server.Addr)

	held, waiting := leased(t, b, request("bank:1", "a")), queued(t, other, request("bank:1", "b"))
	require.NoError(t, shop.Delete(itemKey("bank:1"))) // ends
	next := granted(t, waiting)
	lost(t, held)
	release(t, next)

	set := func(key string, s item) {
		text, err := json.Marshal(s)
		require.NoError(t, err)
		require.NoError(t, shop.Set(&memcache.Item{Key: itemKey(key), Value: text}))
	}
	set("bank:2", item{Owners: []owner{{ID: "ghost", Instance: "shop", TTL: ttl}}}) // takes
	queued(t, b, request("bank:2", "a"))

	held, waiting = leased(t, b, request("bank:3", "a")), queued(t, other, request("bank:3", "b"))
	s := look(t, shop, "bank:3")
	set("bank:3", item{Owners: append(s.Owners, s.Queue...)}) // gives away
	beside := granted(t, waiting)
	require.True(t, held.Healthy(), "two holders")
	release(t, beside)
	release(t, held)
}
