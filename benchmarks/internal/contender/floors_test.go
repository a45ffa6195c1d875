package contender

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/redistest"
)

// The token goes to the instance that waits longest, although that of the holder has a caller as well. A caller that leaves passes it on.
func TestTurnsAreInTheOrderOfArrival(t *testing.T) {
	s := redistest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	here, there := newTurns(s.Client(), "token"), newTurns(s.Client(), "token")
	got := make(chan string, 2)
	queued := func(one *turns) func() bool { return func() bool { return one.queued.Load() == 1 } }
	blocked := func() bool { return strings.Contains(s.Do("INFO", "clients").(string), "blocked_clients:1") }
	wait := func(ctx context.Context, name string, one *turns, begun func() bool) {
		go func() {
			if one.take(ctx) != nil {
				name += " has left"
			}
			got <- name
		}()
		redistest.Eventually(t, time.Minute, "a caller waits", begun)
	}
	require.NoError(t, here.take(ctx))
	wait(ctx, "there", there, blocked)
	wait(ctx, "here", here, queued(here))
	require.NoError(t, here.give())
	assert.Equal(t, "there", <-got)
	wait(ctx, "there", there, queued(there))
	require.NoError(t, there.give())
	assert.Equal(t, "here", <-got)
	left, leave := context.WithCancel(ctx)
	leave()
	wait(left, "here", here, queued(here))
	require.NoError(t, here.give())
	assert.ElementsMatch(t, []string{"here has left", "there"}, []string{<-got, <-got})
}
