package distributed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

func TestUnavailable(t *testing.T) {
	why := errors.New("why")
	for want, err := range map[string]error{
		"redis: enter: unavailable: context deadline exceeded": distributed.Unavailable("redis: enter", context.DeadlineExceeded),
		"redis: enter: refused: why":                           distributed.Unavailable("redis: enter", why, distributed.ErrRefused),
		"redis: enter: unavailable: why: lock backend not reached": distributed.Unavailable("redis: enter",
			fmt.Errorf("why: %w", distributed.ErrUnreached)),
		"no answer within 1s": distributed.Unavailable("", errors.New("no answer within 1s")),
		"sql: ping: unavailable: failed to connect to u: 1: refused; 2: refused": distributed.Unavailable("sql: ping",
			errors.New("failed to connect to u:\n\t1: refused\n\t2: refused\n\t1: refused\n")),
	} {
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, distributed.ErrUnavailable)
	}
	both := errors.New("both")
	err := distributed.Unavailable("redis", why, distributed.ErrUnreached, both)
	for _, is := range []error{why, distributed.ErrUnreached, both} {
		require.ErrorIs(t, err, is)
	}
	require.NotErrorIs(t, err, distributed.ErrRefused)
}
