package problem

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A client that comes back too early is refused again. One that comes back later than the others does no harm.
func TestDelaysAreRoundedUp(t *testing.T) {
	for range 100 {
		h := http.Header{}
		RetryAfter(h, 1001*time.Millisecond)
		require.Contains(t, []string{"2", "3"}, h.Get("Retry-After"))
		ms := Milliseconds(19*time.Millisecond + time.Nanosecond)
		require.GreaterOrEqual(t, ms, int64(20))
		require.LessOrEqual(t, ms, int64(30))
	}
}
