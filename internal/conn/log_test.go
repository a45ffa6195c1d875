package conn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// An outage printed a line for each dial to standard error, past the logger that the application had chosen.
func TestDialsOfOursPrintNothing(t *testing.T) {
	var out bytes.Buffer
	f := filter{log.New(&out, "", 0)}
	redis.SetLogger(f)
	t.Cleanup(func() { redis.SetLogger(filter{log.New(os.Stderr, "redis: ", 0)}) })

	o := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}
	theirs := redis.NewClient(o)
	defer theirs.Close()
	require.Error(t, theirs.Ping(context.Background()).Err())
	require.Contains(t, out.String(), "failed to dial", "the application's own client prints as before")

	out.Reset()
	o = &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, Dialer: dialerOf(nil, nil, DialTimeout, new(tlsSilence))}
	ours := redis.NewClient(o)
	defer ours.Close()
	require.Error(t, ours.Ping(context.Background()).Err())
	require.Empty(t, out.String())

	f.Printf(context.Background(), "%v", fmt.Errorf("pool: %w", unreached{errors.New("refused")}))
	require.Empty(t, out.String())
	f.Printf(context.Background(), "%d of %v", 3, errors.New("other"))
	require.Equal(t, "3 of other\n", out.String())
}
