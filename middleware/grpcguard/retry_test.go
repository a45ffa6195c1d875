package grpcguard_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/wllocktest"
)

// policy is a retry policy of grpc-go clients. Its own back-off is an hour, so that only a pushback can make it retry within
// the test.
const policy = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "3600s", "maxBackoff": "3600s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "ABORTED", "UNAVAILABLE"]}}]}`

// arrivals notes when calls arrive at a server, before the guard.
type arrivals struct {
	mu sync.Mutex
	at []time.Time
}

func (a *arrivals) note(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	a.mu.Lock()
	a.at = append(a.at, time.Now())
	a.mu.Unlock()
	return h(ctx, req)
}

func (a *arrivals) gaps() (gaps []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := 1; i < len(a.at); i++ {
		gaps = append(gaps, a.at[i].Sub(a.at[i-1]))
	}
	return gaps
}

func TestRetryPolicyObeysThePushback(t *testing.T) {
	l := wllocktest.New(t)
	release := wllocktest.Hold(t, l, "product", secret) // of no turn has been seen the end, so the estimate is 100 ms
	a := &arrivals{}
	server := []grpc.ServerOption{grpc.ChainUnaryInterceptor(a.note, guardOf(l, wllock.NoWait()))}
	c := start(t, &service{unary: func(context.Context) error { return nil }}, server, grpc.WithDefaultServiceConfig(policy))
	time.AfterFunc(150*time.Millisecond, release)
	_, err := c.UnaryCall(t.Context(), simple)
	require.NoError(t, err)
	gaps := a.gaps()
	require.NotEmpty(t, gaps)
	for _, gap := range gaps {
		require.Greater(t, gap, 50*time.Millisecond)
		testscope.InTime(t, gap, time.Second, "the next try")
	}
	t.Logf("tried again after %v", gaps)
}

// Otherwise this server, or the next one, would get the call and do the work a second time.
func TestRetryPolicyObeysTheProhibition(t *testing.T) {
	for name, end := range map[string]func(l *wllock.Locker, faults *wllocktest.Faults){
		"lost":   func(_ *wllock.Locker, faults *wllocktest.Faults) { faults.Lose("product", secret) },
		"closed": func(l *wllock.Locker, _ *wllocktest.Faults) { closeUnder(l) },
	} {
		t.Run(name, func(t *testing.T) {
			l, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(100*time.Millisecond))
			a := &arrivals{}
			c := start(t, &service{unary: func(ctx context.Context) error {
				end(l, faults)
				<-ctx.Done()
				return ctx.Err()
			}}, []grpc.ServerOption{grpc.ChainUnaryInterceptor(a.note, guardOf(l))}, grpc.WithDefaultServiceConfig(policy))
			_, err := c.UnaryCall(t.Context(), simple)
			lostRow.check(t, err, nil)
			require.Empty(t, a.gaps(), "a call that may have done its work is not repeated")
		})
	}
}
