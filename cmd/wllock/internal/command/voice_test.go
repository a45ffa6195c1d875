package command

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A library that tells each of its tries is heard once a minute.
func TestALibraryIsHeardOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &libraries{app: &app{err: &out}, said: map[string]time.Time{}}
		for n := range 100 {
			l.Printf(t.Context(), "sentinel: %d failed", n)
		}
		l.Printf(t.Context(), "sentinel: new master %s", "b")
		time.Sleep(repeatAfter)
		l.Printf(t.Context(), "sentinel: %d failed", 100)
		require.Equal(t, "wllock: sentinel: 0 failed\nwllock: sentinel: new master b\nwllock: sentinel: 100 failed\n", out.String())
	})
}
