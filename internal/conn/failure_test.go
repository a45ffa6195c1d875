package conn

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

func TestClassify(t *testing.T) {
	for err, want := range map[error]Failure{
		nil:                            None,
		context.DeadlineExceeded:       Transient,
		errors.New("EOF"):              Transient,
		redis.ErrClosed:                Permanent,
		Refusal(errors.New("too old")): Permanent,
	} {
		require.Equal(t, want, Classify(err), "%v", err)
	}
}

// TestWhatMayHaveBeenDoneIsNotUnreached: of two tries one was lost, and the other found no connection.
func TestWhatMayHaveBeenDoneIsNotUnreached(t *testing.T) {
	dial, lost, late := unreached{errors.New("connection refused")}, errors.New("EOF"), context.DeadlineExceeded
	for _, now := range []error{dial, unsent{late}} {
		require.ErrorIs(t, Unavailable("enter", MoreTelling(dial, now)), distributed.ErrUnreached)
	}
	for _, tries := range [][2]error{{dial, lost}, {lost, dial}, {dial, late}, {late, dial}} {
		err := Unavailable("enter", MoreTelling(tries[0], tries[1]))
		require.NotErrorIs(t, err, distributed.ErrUnreached, "%v", tries)
		require.ErrorIs(t, err, distributed.ErrUnavailable)
	}
	require.NotErrorIs(t, MoreTelling(MoreTelling(dial, lost), dial), distributed.ErrUnreached)
}
