package httpguard_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/wllocktest"
)

// Over an HTTP/2 connection a hot key leaves room for other keys if its threshold is reached before the streams are used up. Else, Go's client
// opens another connection; a client that does not would wait.
func TestHotKeyAndTheStreamsOfAConnection(t *testing.T) {
	for name, test := range map[string]struct{ threshold, streams, connections int }{
		"more streams than the threshold": {threshold: 5, streams: 20, connections: 1},
		"fewer streams":                   {threshold: 20, streams: 5, connections: 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := wllocktest.New(t, wllock.WithThreshold(test.threshold))
			release := wllocktest.Hold(t, l, "product", "hot")
			var connections atomic.Int32
			s := start(t, true, guarded(l, reading), func(s *http.Server) {
				s.ConnState = func(_ net.Conn, state http.ConnState) {
					if state == http.StateNew {
						connections.Add(1)
					}
				}
				s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: test.streams}
			})
			post := func(key string) int {
				resp, err := s.Client().Post(s.URL+"?id="+key, "text/plain", strings.NewReader("{}"))
				if !assert.NoError(t, err) {
					return 0
				}
				defer resp.Body.Close()
				_, _ = io.Copy(io.Discard, resp.Body)
				return resp.StatusCode
			}
			require.Equal(t, http.StatusOK, post("first")) // the client has learned how many streams there are
			var hot sync.WaitGroup
			for range 5 {
				hot.Go(func() { assert.Equal(t, http.StatusOK, post("hot")) })
			}
			waiting(t, l, 5)
			if test.threshold == 5 {
				require.Equal(t, http.StatusTooManyRequests, post("hot"))
			}
			require.Equal(t, http.StatusOK, post("other"))
			require.EqualValues(t, test.connections, connections.Load())
			release()
			hot.Wait()
		})
	}
}
