package conn

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
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
