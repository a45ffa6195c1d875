package telemetry_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// collect returns what is measured, by name.
func collect(t *testing.T, r metric.Reader) map[string]metricdata.Aggregation {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.Collect(t.Context(), &all))
	data := map[string]metricdata.Aggregation{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		data[m.Name] = m.Data
	}
	return data
}

// counts sums every metric up over its points, and fails on a point that names a key.
func counts(t *testing.T, r metric.Reader) map[string]float64 {
	t.Helper()
	sums := map[string]float64{}
	for name, data := range collect(t, r) {
		add := func(attrs attribute.Set, v float64) {
			for _, a := range attrs.ToSlice() {
				require.NotContains(t, a.Value.String(), "secret-key", "%s %s", name, a.Key)
			}
			sums[name] += v
		}
		switch d := data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				add(p.Attributes, float64(p.Count))
			}
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				add(p.Attributes, float64(p.Value))
			}
		case metricdata.Gauge[int64]:
			for _, p := range d.DataPoints {
				add(p.Attributes, float64(p.Value))
			}
		}
	}
	return sums
}

// ended returns the spans of a name that have ended, as soon as there are n: they end a moment after the calls.
func ended(t *testing.T, r *tracetest.SpanRecorder, name string, n int) (spans []trace.ReadOnlySpan) {
	t.Helper()
	other := func(s trace.ReadOnlySpan) bool { return s.Name() != name }
	require.Eventually(t, func() bool {
		spans = slices.DeleteFunc(slices.Clone(r.Ended()), other)
		return len(spans) >= n
	}, 5*time.Second, time.Millisecond)
	require.Len(t, spans, n)
	return spans
}

func TestMetricsCountWithoutKeys(t *testing.T) {
	reader, metrics := measuring()
	l, b := newLocker(t, wllock.WithThreshold(0), metrics)
	require.NoError(t, l.Do(t.Context(), "n", "secret-key", nothing))
	for _, counter := range []string{"sheds", "handoffs", "losses", "degradations", "renewals"} {
		require.Eventually(t, func() bool { _, there := counts(t, reader)["wllock."+counter]; return there }, 5*time.Second, time.Millisecond)
	}
	require.NoError(t, l.Do(t.Context(), "n", "secret-key", func(ctx context.Context) error {
		require.Error(t, l.Do(context.Background(), "n", "secret-key", never(t)))
		got := counts(t, reader)
		require.EqualValues(t, 1, got["wllock.lock.count"])
		require.EqualValues(t, 1, got["wllock.sheds"])
		return nil
	}))
	lostAfter(t, l.Do(t.Context(), "n", "secret-key", func(ctx context.Context) error {
		b.Expire("test:n:secret-key")
		<-ctx.Done()
		return nil
	}))
	require.Eventually(t, func() bool { return counts(t, reader)["wllock.losses"] == 1 }, 5*time.Second, time.Millisecond)
	got := counts(t, reader)
	require.Zero(t, got["wllock.lock.count"])
	require.Zero(t, got["wllock.waiter.count"])
	require.Zero(t, got["wllock.waiter.limit"])
	require.EqualValues(t, 3, got["wllock.hold.duration"])
	require.EqualValues(t, 3*2+1, got["wllock.acquire.duration"], "both tiers of two, one tier of the one refused")
}

// Gauges of two Lockers of one system in a process do not overwrite each other. A third has the attribute of one that was closed.
func TestGaugesOfTwoLockers(t *testing.T) {
	reader, metrics := measuring()
	use := func(threshold int) *wllock.Locker {
		l, _ := newLocker(t, wllock.WithThreshold(threshold), metrics)
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
		return l
	}
	use(7)
	second := use(50)
	require.EqualValues(t, 57, counts(t, reader)["wllock.waiter.limit"])
	require.EqualValues(t, 2, counts(t, reader)["wllock.backend.available"])
	require.NoError(t, second.Close(t.Context()))
	use(600)
	require.EqualValues(t, 607, counts(t, reader)["wllock.waiter.limit"])
}

func TestMetricsOfRenewalsAndAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, metrics := measuring()
		l, b := newLocker(t, wllock.WithOutage(wllock.LocalOnly), metrics)
		require.NoError(t, l.Do(t.Context(), "n", "secret-key", func(ctx context.Context) error {
			time.Sleep(ttl / 4)
			got := counts(t, reader)
			require.EqualValues(t, 1, got["wllock.renewals"])
			require.Zero(t, got["wllock.degraded"])
			b.Partition(true)
			time.Sleep(2 * ttl)
			got = counts(t, reader)
			require.Greater(t, got["wllock.renewals"], 2.0, "failed ones, too")
			require.EqualValues(t, 1, got["wllock.degraded"])
			b.Partition(false)
			time.Sleep(ttl / 4)
			require.Zero(t, counts(t, reader)["wllock.degraded"])
			return nil
		}))
		require.EqualValues(t, 1, counts(t, reader)["wllock.degradations"])
	})
}

func TestSpansTellHowItWent(t *testing.T) {
	for typ, test := range map[string]struct {
		opts   []wllock.CallOption
		events []string
	}{
		"queue_full":   {[]wllock.CallOption{wllock.WithCallThreshold(0), wllock.WithFallback(func(context.Context, error) error { return nil })}, nil},
		"wait_timeout": {[]wllock.CallOption{wllock.WithWait(20 * time.Millisecond)}, []string{"queued"}},
	} {
		t.Run(typ, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder, option := recording()
				l, _ := newLocker(t, option)
				require.NoError(t, l.Do(t.Context(), "n", "k", func(context.Context) error {
					err := l.Do(context.Background(), "n", "k", never(t), test.opts...)
					require.Equal(t, typ == "wait_timeout", err != nil)
					return nil
				}))
				hold := ended(t, recorder, "wllock.hold", 1)[0]
				spans := ended(t, recorder, "wllock.acquire", 2)
				require.False(t, spans[0].Parent().IsValid(), "a caller without a span has both in one trace")
				require.Equal(t, spans[0].SpanContext(), hold.Parent())
				require.Equal(t, "acquired", spans[0].Events()[0].Name)
				require.Contains(t, spans[1].Attributes(), attribute.String("error.type", typ))
				var events []string
				for _, e := range spans[1].Events() {
					events = append(events, e.Name)
				}
				require.Equal(t, test.events, events)
				for _, s := range recorder.Ended() {
					for _, a := range s.Attributes() {
						require.NotEqual(t, "test:n:k", a.Value.String())
					}
				}
			})
		})
	}
}

func TestKeysAreOnSpansOnlyIfAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for asked, opts := range map[bool][]wllock.Option{false: nil, true: {wllock.WithSpanKeys()}} {
			recorder, spans := recording()
			l, _ := newLocker(t, append(opts, spans)...)
			require.NoError(t, l.Do(t.Context(), "n", "secret-key", nothing))
			for _, s := range append(ended(t, recorder, "wllock.hold", 1), ended(t, recorder, "wllock.acquire", 1)...) {
				span := fmt.Sprint(s.Attributes(), s.Events())
				require.Equal(t, asked, strings.Contains(span, "secret-key"), span)
				require.Equal(t, asked, slices.Contains(s.Attributes(), attribute.String("wllock.key", "test:n:secret-key")))
			}
		}
	})
}

// Providers that do nothing make a call pay for one span of theirs, and for no attributes of ours.
func TestDisabledInstrumentsAreNotFed(t *testing.T) {
	do := func(opts ...wllock.Option) float64 {
		l, _ := newLocker(t, opts...)
		return testing.AllocsPerRun(1000, func() { _ = l.Do(context.Background(), "n", "k", nothing) })
	}
	none := do()
	require.LessOrEqual(t, do(wllock.WithMeterProvider(metricnoop.NewMeterProvider())), none+1)
	dropped := trace.NewTracerProvider(trace.WithSampler(trace.NeverSample()))
	require.Less(t, do(wllock.WithTracerProvider(dropped)), do(wllock.WithTracerProvider(trace.NewTracerProvider())))
}

// TestRefusedWaitIsSplitByTier: a caller that waited 3 s in the local queue and 1 s at the backend, and then gave up.
func TestRefusedWaitIsSplitByTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, metrics := measuring()
		a, b := newLocker(t, metrics, wllock.WithMaxHandoffs(0))
		other := lockerOn(t, b)
		var holders sync.WaitGroup
		in := make(chan struct{})
		holders.Go(func() {
			assert.NoError(t, a.Do(t.Context(), "n", "k", func(context.Context) error { close(in); time.Sleep(3 * time.Second); return nil }))
		})
		<-in
		holders.Go(func() { // is queued at the backend before the next one of a
			assert.NoError(t, other.Do(t.Context(), "n", "k", func(context.Context) error { time.Sleep(5 * time.Second); return nil }))
		})
		synctest.Wait()
		require.ErrorIs(t, a.Do(t.Context(), "n", "k", never(t), wllock.WithWait(4*time.Second)), wllock.ErrWaitTimeout)
		sums := map[string]float64{}
		for _, p := range collect(t, reader)["wllock.acquire.duration"].(metricdata.Histogram[float64]).DataPoints {
			tier, _ := p.Attributes.Value("wllock.tier")
			outcome, _ := p.Attributes.Value("wllock.outcome")
			sums[tier.AsString()+" "+outcome.AsString()] += p.Sum
		}
		require.InDelta(t, 3, sums["local acquired"], .01)
		require.InDelta(t, 1, sums["distributed wait_timeout"], .01)
		holders.Wait()
	})
}

// TestClosedLockerIsForgotten: a provider outlives many Lockers.
func TestClosedLockerIsForgotten(t *testing.T) {
	reader := metric.NewManualReader()
	p := metric.NewMeterProvider(metric.WithReader(reader))
	gone := make(chan struct{})
	func() {
		l, err := wllock.New("test", memlock.New(), wllock.WithMeterProvider(p))
		require.NoError(t, err)
		runtime.AddCleanup(l, func(int) { close(gone) }, 0)
		require.NoError(t, l.Do(t.Context(), "n", "k", nothing))
		require.NoError(t, l.Close(t.Context()))
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}, 30*time.Second, 10*time.Millisecond)
	runtime.KeepAlive(p)
}
