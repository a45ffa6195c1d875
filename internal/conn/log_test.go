package conn

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// printer is a logger of go-redis.
type printer struct{ *log.Logger }

func (p printer) Printf(_ context.Context, format string, args ...any) {
	_ = p.Output(3, fmt.Sprintf(format, args...))
}

// listens counts the failures of a subscription.
type listens struct {
	failures sync.WaitGroup
	left     int
}

func (*listens) OnMessage(string, string)  {}
func (*listens) OnSubscribe(string)        {}
func (*listens) OnRefused(string, error)   {}
func (*listens) Expects() (string, string) { return "", "" }

func (l *listens) OnDisconnect(error) {
	if l.left > 0 {
		l.left--
		l.failures.Done()
	}
}

// An outage printed a line for each dial to standard error, past the logger that the application had chosen.
func TestDialsOfOursPrintNothing(t *testing.T) {
	var out bytes.Buffer
	redis.SetLogger(printer{log.New(&out, "", 0)})
	t.Cleanup(func() { redis.SetLogger(printer{log.New(os.Stderr, "redis: ", log.LstdFlags|log.Lshortfile)}) })

	o := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}
	theirs := redis.NewClient(o)
	defer theirs.Close()
	require.Error(t, theirs.Ping(context.Background()).Err())
	require.Contains(t, out.String(), "failed to dial", "the application's own client prints")

	out.Reset()
	tr := Single(o, Config{PrefixOf: func(string) string { return "test:" }})
	ctx, cancel := context.WithCancel(t.Context())
	l := &listens{left: 3}
	l.failures.Add(l.left)
	var listening sync.WaitGroup
	listening.Go(func() { tr.ListenTo(ctx, NewChannels("test:1"), func() time.Duration { return time.Second }, l) })
	for range 100 {
		_, err := tr.Ping(ctx, "")
		require.Error(t, err)
		tr.Do(ctx, NewCall(anyScript, []string{"k"}), NewCall(anyScript, []string{"k"}))
	}
	l.failures.Wait()
	cancel()
	listening.Wait()
	require.NoError(t, tr.Close())
	require.Empty(t, out.String())
}
