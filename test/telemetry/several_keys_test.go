package telemetry_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testlocker"
)

var several = []wllock.Resource{{Name: "b", Key: "1"}, {Name: "a", Key: "2"}, {Name: "a", Key: "1"}}

func TestDoAllIsOneSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for withKeys, opts := range map[bool][]wllock.Option{false: nil, true: {wllock.WithSpanKeys()}} {
			recorder, spans := recording()
			l, _ := newLocker(t, append(opts, spans)...)
			require.NoError(t, l.DoAll(t.Context(), several, func(ctx context.Context) error {
				return l.DoAll(ctx, several, nothing) // nothing is acquired
			}))
			s, inside := ended(t, recorder, "wllock.acquire", 1)[0], ended(t, recorder, "wllock.hold", 1)[0]
			require.WithinDuration(t, s.EndTime(), inside.StartTime(), 0)
			require.Len(t, s.Events(), 3)
			for _, e := range s.Events() {
				require.Equal(t, "acquired", e.Name)
			}
			keys := attribute.StringSlice("wllock.keys", []string{"test:a:1", "test:a:2", "test:b:1"})
			for _, s := range []trace.ReadOnlySpan{s, inside} {
				require.Contains(t, s.Attributes(), attribute.Int("wllock.key.count", 3))
				require.Contains(t, s.Attributes(), attribute.StringSlice("wllock.names", []string{"a", "b"}))
				require.Equal(t, withKeys, slices.Contains(s.Attributes(), keys))
			}
		}
	})
}

func TestSpanOfADoAllNamesTheKeyThatWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, spans := recording()
		l, b := newLocker(t)
		traced := lockerOn(t, b, spans)
		require.NoError(t, l.Do(t.Context(), "b", "1", func(context.Context) error {
			require.ErrorIs(t, traced.DoAll(context.Background(), several, never(t), wllock.NoWait()), wllock.ErrHeld)
			return nil
		}))
		require.NoError(t, traced.Close(t.Context()))
		s := ended(t, recorder, "wllock.acquire", 1)[0]
		require.Equal(t, codes.Error, s.Status().Code)
		require.Contains(t, s.Attributes(), attribute.String("error.type", "held"))
		require.Contains(t, s.Attributes(), attribute.String("wllock.name", "b"))
		require.Len(t, s.Events(), 2, "two were acquired")
	})
}

// Each attempt is a span: the one that lost a key says so.
func TestSpansOfADoAllThatStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, recorded := recording()
		l, b := newLocker(t, recorded)
		release := testlocker.Hold(t, lockerOn(t, b), "b", "1")
		done := make(chan error, 1)
		go func() { done <- l.DoAll(context.Background(), several, nothing) }()
		synctest.Wait()
		b.Expire("test:a:1")
		time.Sleep(ttl)
		release()
		require.NoError(t, <-done)
		require.NoError(t, l.Close(t.Context()))
		ended(t, recorder, "wllock.hold", 1)
		spans := ended(t, recorder, "wllock.acquire", 2)
		require.Equal(t, "lease_lost", spans[0].Status().Description)
		require.Equal(t, codes.Unset, spans[1].Status().Code)
		acquired := 0
		for _, e := range spans[1].Events() { // it may be queued for no time, behind its own earlier turn
			if e.Name == "acquired" {
				acquired++
			}
		}
		require.Equal(t, 3, acquired)
	})
}

func TestMetricsOfADoAllAreByName(t *testing.T) {
	reader, metrics := measuring()
	l, _ := newLocker(t, metrics)
	require.NoError(t, l.DoAll(t.Context(), several, func(context.Context) error {
		require.EqualValues(t, 3, counts(t, reader)["wllock.lock.count"])
		return nil
	}))
	got := counts(t, reader)
	require.Zero(t, got["wllock.lock.count"])
	require.EqualValues(t, 3, got["wllock.hold.duration"])
	require.EqualValues(t, 6, got["wllock.acquire.duration"], "both tiers of three")
}
