package outage_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/outage"
)

// impatient is a server that hangs, with a client that waits for d at most.
func impatient(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return silently(ctx)
	}
}

// A backend that accepts connections and has never answered is known to be away within 2.5 s, whatever T is, and whichever
// time-out its client has: in Health, in the log and in the errors.
func TestSilenceFromTheBeginningIsKnown(t *testing.T) {
	for _, ttl := range []time.Duration{300 * time.Millisecond, 2 * time.Second, 5 * time.Second, time.Hour} {
		for _, own := range []time.Duration{300 * time.Millisecond, time.Second, 2 * time.Second, time.Minute} {
			name, log, b := fmt.Sprintf("T %v, a time-out of %v", ttl, own), new(strings.Builder), newObservable(impatient(own))
			c := outage.Config{Backend: b, System: "test", TTL: ttl, Logger: logTo(log)}
			judgedWith(t, name, c, func(t *testing.T, p *outage.Breaker) {
				_ = enter(p, 2*time.Second)
				require.ErrorIs(t, p.Suspect(), distributed.ErrUnavailable, "a caller that waits for two seconds is told")
				time.Sleep(500 * time.Millisecond)
				synctest.Wait() // what logs has done so
				require.False(t, p.Status().Available)
				require.Contains(t, log.String(), "backend is away")
				asked := b.enters.Load()
				require.ErrorIs(t, enter(p, time.Minute), distributed.ErrUnavailable)
				require.Equal(t, asked, b.enters.Load(), "refused without asking")
			})
		}
	}
}
