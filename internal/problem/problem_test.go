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

// What says of a body how it is, or how long it may be kept, is of one answer. It is as before when another answer takes its place.
func TestFieldsOfAnAnswerAreRestored(t *testing.T) {
	h := http.Header{"Content-Encoding": {"gzip"}, "Vary": {"Accept-Encoding"}, "Content-Security-Policy": {"default-src 'none'"}}
	before := FieldsOf(h)
	h.Set("Content-Encoding", "br")
	h.Set("Content-Security-Policy", "default-src 'self'")
	h.Add("Vary", "Origin")
	h["ETag"] = []string{`"1"`} // as it is not usually spelled, but sent
	for _, name := range []string{"Content-Type", "Content-Length", "Content-Range", "Repr-Digest", "CDN-Cache-Control", "Last-Modified", "Retry-After", "Trailer"} {
		h.Set(name, "other")
	}
	before.Restore(h)
	require.Equal(t, http.Header{"Content-Encoding": {"gzip"}, "Vary": {"Accept-Encoding", "Origin"}, "Content-Security-Policy": {"default-src 'self'"}}, h)
	require.Nil(t, FieldsOf(http.Header{"Vary": {"Origin"}}))
}
