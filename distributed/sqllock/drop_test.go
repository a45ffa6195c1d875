package sqllock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// One transaction at a time removes from a lock's row. Who comes meanwhile waits for it, and not for long: it has other locks to see to.
func TestOneTransactionRemovesFromARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := removing{rows: map[string]chan struct{}{}}
		begin := func(name string) (end func(), waited time.Duration) {
			start := time.Now()
			end = r.begin(t.Context(), name, takePatience)
			return end, time.Since(start)
		}
		end, _ := begin("k")
		other, waited := begin("other")
		require.Zero(t, waited)
		other()
		again, waited := begin("k")
		require.Nil(t, again, "it is another's")
		require.Equal(t, takePatience, waited)
		time.AfterFunc(time.Millisecond, end)
		again, waited = begin("k")
		require.NotNil(t, again)
		require.Equal(t, time.Millisecond, waited)
		again()
		require.Empty(t, r.rows)
	})
}
