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

// An answer that an operator can do something about says what.
func TestAnswersSayWhatToDo(t *testing.T) {
	wllock := func(string) string { return "wllock:" }
	for text, want := range map[string]string{
		"MOVED 3999 127.0.0.1:6381":                      "open it as one (redis+cluster://)",
		"MOVED 3999 :6381":                               "gives its nodes no host: see cluster-announce-ip",
		"READONLY You can't write against a read only":   "locks need the primary",
		"NOPERM this user has no permissions to a key":   "lacks an ACL rule ~pattern",
		"NOPERM can't publish to the channel mentioned ": "lacks the ACL rule &wllock:*",
	} {
		err := explained(wllock, "", answer(text))
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, answer(text))
	}
	require.NoError(t, explained(wllock, "", nil))
}
