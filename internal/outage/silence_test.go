package outage_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// judgesRunning counts the goroutines that ask the backend.
func judgesRunning() int {
	b := make([]byte, 16<<20)
	return strings.Count(string(b[:runtime.Stack(b, true)]), "outage.(*judge).run(")
}

// However long the backend is silent, and however often it stalls, one goroutine asks it; none when nobody needs to know.
func TestTheJudgeHasOneGoroutine(t *testing.T) {
	for name, during := range map[string]func(*observable){
		"silent": func(b *observable) { b.does(silently); time.Sleep(2 * time.Minute) },
		"stalls now and then": func(b *observable) {
			for range 60 {
				b.does(silently)
				time.Sleep(400 * time.Millisecond)
				b.does(after(time.Millisecond))
				time.Sleep(1600 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newObservable(after(time.Millisecond))
				all := policies(t, b, 5*time.Second, silent)
				for _, p := range all {
					require.NoError(t, enter(p, time.Second))
					p.Await()
				}
				during(b)
				require.Equal(t, 1, judgesRunning())
				b.does(after(time.Millisecond))
				for _, p := range all {
					p.Awaited()
				}
				time.Sleep(10 * time.Second)
				require.Zero(t, judgesRunning(), "nobody waits")
			})
		})
	}
}
