package debug_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testlocker"
)

// remote is a backend whose answers take a while.
type remote struct{ distributed.Backend }

func (r remote) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	time.Sleep(time.Millisecond)
	return r.Backend.Enter(ctx, req)
}

// "Available" is what the last answer told: the page says how old that is.
func TestTheAgeOfTheLastAnswerIsShown(t *testing.T) {
	l := testlocker.On(t, remote{memlock.New()})
	require.Zero(t, getJSON(t, l).Backend.Answered)
	require.NotContains(t, getText(t, l), "last answer")
	require.NoError(t, l.Do(t.Context(), "n", "k", testlocker.Nothing))
	require.WithinDuration(t, time.Now(), getJSON(t, l).Backend.Answered, time.Minute)
	require.Regexp(t, "backend available for .*, last answer [0-9.µmsh]+ ago\n", getText(t, l))
	require.Regexp(t, "Backend available for [^<]*; its last answer was [0-9.µmsh]+ ago</p>", getHTML(t, "/", l))
}
