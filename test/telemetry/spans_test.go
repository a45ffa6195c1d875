package telemetry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testlocker"
)

// A caller that waits for 3 s and holds for 2 s: the one span is as long as the wait, the other as the hold, and what the function does
// is inside the latter.
func TestAcquireEndsAtTheGrantAndHoldFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := tracetest.NewSpanRecorder()
		provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
		tracer := provider.Tracer("shop")
		l, _ := newLocker(t, wllock.WithTracerProvider(provider))
		release := testlocker.Hold(t, l, "n", "k")
		done := make(chan error, 1)
		go func() {
			ctx, request := tracer.Start(context.Background(), "request")
			defer request.End()
			done <- l.Do(ctx, "n", "k", func(ctx context.Context) error {
				held, ok := wllock.HeldFrom(ctx)
				assert.True(t, ok)
				assert.Positive(t, held.Fence())
				_, query := tracer.Start(ctx, "query")
				defer query.End()
				time.Sleep(2 * time.Second)
				return l.Do(ctx, "n", "k", nothing) // nested: no span
			})
		}()
		synctest.Wait()
		time.Sleep(3 * time.Second)
		release()
		require.NoError(t, <-done)
		require.NoError(t, l.Close(t.Context()))

		acquire, hold := ended(t, recorder, "wllock.acquire", 2)[1], ended(t, recorder, "wllock.hold", 2)[1]
		request, query := ended(t, recorder, "request", 1)[0], ended(t, recorder, "query", 1)[0]
		require.Equal(t, 3*time.Second, acquire.EndTime().Sub(acquire.StartTime()))
		require.Equal(t, acquire.EndTime(), hold.StartTime())
		require.Equal(t, 2*time.Second, hold.EndTime().Sub(hold.StartTime()))
		require.Equal(t, request.SpanContext().SpanID(), acquire.Parent().SpanID())
		require.Equal(t, request.SpanContext().SpanID(), hold.Parent().SpanID())
		require.Equal(t, acquire.SpanContext(), hold.Links()[0].SpanContext)
		require.Equal(t, hold.SpanContext(), query.Parent())
		for _, s := range []trace.ReadOnlySpan{acquire, hold} {
			set := attribute.NewSet(s.Attributes()...)
			wait, _ := set.Value("wllock.wait.local")
			require.InDelta(t, 3, wait.AsFloat64(), .01)
			fence, _ := set.Value("wllock.fence")
			require.Regexp(t, `^[1-9][0-9]*$`, fence.AsString())
			for _, a := range []attribute.KeyValue{attribute.Float64("wllock.wait.distributed", 0), attribute.Bool("wllock.handoff", true),
				attribute.String("wllock.mode", "exclusive"), attribute.String("wllock.name", "n"), attribute.String("wllock.system", "test")} {
				require.Contains(t, s.Attributes(), a)
			}
			require.Equal(t, codes.Unset, s.Status().Code)
		}
	})
}

// The loss of a lock is on the span of the hold, and ends it, though the function stays; the wait went well.
func TestLossIsOnTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, spans := recording()
		l, b := newLocker(t, spans)
		for _, act := range []func(fn wllock.Func) error{
			func(fn wllock.Func) error { return l.Do(t.Context(), "a", "1", fn) },
			func(fn wllock.Func) error { return l.DoAll(t.Context(), several, fn) },
		} {
			lostAfter(t, act(func(ctx context.Context) error {
				b.Expire("test:a:1")
				derived, cancel := context.WithCancel(ctx)
				defer cancel()
				<-derived.Done()
				time.Sleep(time.Minute)
				return nil
			}))
			synctest.Wait()
		}
		require.NoError(t, l.Close(t.Context()))
		for _, s := range ended(t, recorder, "wllock.hold", 2) {
			require.Equal(t, "lease_lost", s.Status().Description)
			require.Equal(t, "lost", s.Events()[0].Name)
			require.Less(t, s.EndTime().Sub(s.StartTime()), 2*ttl)
		}
		for _, s := range ended(t, recorder, "wllock.acquire", 2) {
			require.Equal(t, codes.Unset, s.Status().Code)
		}
	})
}

// slowHolds is a sampler that stands still for the spans of holds alone.
type slowHolds struct{ trace.Sampler }

func (s slowHolds) ShouldSample(p trace.SamplingParameters) trace.SamplingResult {
	if p.Name == "wllock.hold" {
		time.Sleep(10 * time.Second)
	}
	return s.Sampler.ShouldSample(p)
}

// The lock is held while the span of the hold is started: a tracer that stands still there delays a caller and those behind it by 10 ms, a few
// times, and then not at all.
func TestTracerThatStallsAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLocker(t, traced(trace.WithSampler(slowHolds{trace.AlwaysSample()})))
		begin := time.Now()
		for range 100 {
			asked, ran := time.Now(), false
			require.NoError(t, l.Do(t.Context(), "n", "k", func(context.Context) error { ran = true; return nil }))
			require.True(t, ran)
			require.LessOrEqual(t, time.Since(asked), late)
		}
		require.LessOrEqual(t, time.Since(begin), 10*late)
		require.NotZero(t, l.Stats().ReportsDropped)
		time.Sleep(time.Minute) // they come back
		require.NoError(t, l.Close(t.Context()))
	})
}
