package redislock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// TestListOf100000Locks measures how soon the first page of many locks is there, and what a pass through all costs the server.
func TestListOf100000Locks(t *testing.T) {
	testscope.Longest(t, "a measurement")
	const locks, limit = 100_000, 100
	s := redistest.Start(t)
	b := open(t, s.Addr)
	_, err := b.Inspect(t.Context(), "order:product:0") // connected
	require.NoError(t, err)
	p := s.Client().Pipeline()
	for i := range locks {
		key := fmt.Sprint("order:product:", i)
		p.Set(t.Context(), key, fmt.Sprintf("wllock:x:ABCDEFGHIJKL:%d:web-7f9c9d8b6-x2abz-k3j5h7q2m4:5000:%d", i, time.Now().UnixNano()), time.Hour)
		p.Set(t.Context(), keysOf(key, "")[1], fmt.Sprint(time.Now().UnixMicro()), time.Hour)
		if i%1000 == 999 {
			_, err := p.Exec(t.Context())
			require.NoError(t, err)
		}
	}
	before, start := serverCPU(t, s), time.Now()
	page, cursor, err := b.List(t.Context(), "order:", "", limit)
	require.NoError(t, err)
	first, cpu := time.Since(start), serverCPU(t, s)-before
	require.GreaterOrEqual(t, len(page), limit/2)
	seen, pages := len(page), 1
	for ; cursor != ""; pages++ {
		page, cursor, err = b.List(t.Context(), "order:", cursor, limit)
		require.NoError(t, err)
		seen += len(page)
	}
	require.GreaterOrEqual(t, seen, locks)
	t.Logf("first page of %d keys after %v, %.1f ms of the server's CPU; all %d in %d pages after %v, %.0f ms", limit, first, cpu*1e3,
		seen, pages, time.Since(start), (serverCPU(t, s)-before)*1e3)
	require.Less(t, first, time.Second)
	require.Less(t, cpu, 0.05) // of that second
}
