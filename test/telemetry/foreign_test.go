package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
)

// hooks are the places in which a Locker runs an application's code.
var hooks = map[string]func(hook func()) wllock.Option{
	"sampler": func(hook func()) wllock.Option { return traced(trace.WithSampler(sampler{trace.AlwaysSample(), hook})) },
	"span starts": func(hook func()) wllock.Option {
		return traced(trace.WithSpanProcessor(processor{start: hook, end: func() {}}))
	},
	"span context": func(hook func()) wllock.Option { return wllock.WithTracerProvider(provider{hook: hook}) },
	"span ends": func(hook func()) wllock.Option {
		return traced(trace.WithSpanProcessor(processor{start: func() {}, end: hook}))
	},
	"filter of a view": func(hook func()) wllock.Option {
		view := metric.NewView(metric.Instrument{Name: "wllock.*"},
			metric.Stream{AttributeFilter: func(attribute.KeyValue) bool { hook(); return true }})
		return wllock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()), metric.WithView(view)))
	},
	"event": func(hook func()) wllock.Option { return wllock.WithEvents(func(wllock.Event) { hook() }) },
	"log is enabled": func(hook func()) wllock.Option {
		return wllock.WithLogger(slog.New(handler{enabled: hook, handle: func() {}}))
	},
	"log line": func(hook func()) wllock.Option {
		return wllock.WithLogger(slog.New(handler{enabled: func() {}, handle: hook}))
	},
}

func traced(o trace.TracerProviderOption) wllock.Option {
	return wllock.WithTracerProvider(trace.NewTracerProvider(o))
}

type sampler struct {
	trace.Sampler
	hook func()
}

func (s sampler) ShouldSample(p trace.SamplingParameters) trace.SamplingResult {
	s.hook()
	return s.Sampler.ShouldSample(p)
}

// provider makes spans that run the hook when they are asked for their context.
type provider struct {
	noop.TracerProvider
	hook func()
}

func (p provider) Tracer(string, ...oteltrace.TracerOption) oteltrace.Tracer {
	return tracer{hook: p.hook}
}

type tracer struct {
	noop.Tracer
	hook func()
}

func (t tracer) Start(ctx context.Context, _ string, _ ...oteltrace.SpanStartOption) (context.Context, oteltrace.Span) {
	s := span{hook: t.hook}
	return oteltrace.ContextWithSpan(ctx, s), s
}

type span struct {
	noop.Span
	hook func()
}

func (s span) IsRecording() bool { return true }

func (s span) SpanContext() oteltrace.SpanContext {
	s.hook()
	return s.Span.SpanContext()
}

type processor struct{ start, end func() }

func (p processor) OnStart(context.Context, trace.ReadWriteSpan) { p.start() }
func (p processor) OnEnd(trace.ReadOnlySpan)                     { p.end() }
func (processor) Shutdown(context.Context) error                 { return nil }
func (processor) ForceFlush(context.Context) error               { return nil }

type handler struct{ enabled, handle func() }

func (h handler) Enabled(context.Context, slog.Level) bool  { h.enabled(); return true }
func (h handler) Handle(context.Context, slog.Record) error { h.handle(); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h handler) WithGroup(string) slog.Handler             { return h }

// late is the most by which foreign code may delay a caller.
const late = 10 * time.Millisecond

// TestForeignCodeHarmsNoLock: whatever an application's logger, telemetry or event function does, no lease is lost, no turn is kept, no
// caller is late by more than 10 ms, and Close returns in time.
func TestForeignCodeHarmsNoLock(t *testing.T) {
	for what, misbehave := range map[string]func(){
		"panics":       func() { panic("foreign") },
		"stands still": func() { time.Sleep(10 * time.Second) },
		"exits":        runtime.Goexit,
	} {
		for name, hook := range hooks {
			for policy, outage := range map[string]wllock.Outage{"fail closed": wllock.FailClosed, "local only": wllock.LocalOnly} {
				t.Run(fmt.Sprintf("%s %s, %s", name, what, policy), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := harmless(t, hook(misbehave), wllock.WithOutage(outage))
						require.Equal(t, what != "stands still", s.ReportPanics > 0, "%d panics", s.ReportPanics)
					})
				})
			}
		}
	}
}

// harmless checks a Locker in all that is reported: hand-offs, refusals, losses, overstays, outages.
func harmless(t *testing.T, opts ...wllock.Option) wllock.Stats {
	b := memlock.New()
	l, err := wllock.New("test", b, append(opts, wllock.WithLeaseTTL(ttl))...)
	require.NoError(t, err)
	inTime := func(limit time.Duration, f func()) {
		t.Helper()
		begin := time.Now()
		f()
		require.LessOrEqual(t, time.Since(begin), limit+late)
	}
	acquire := func(key string, opts ...wllock.CallOption) *wllock.Lock {
		t.Helper()
		k, err := l.Acquire(t.Context(), "n", key, opts...)
		require.NoError(t, err)
		return k
	}
	var held []*wllock.Lock
	for i := range 50 {
		inTime(0, func() { held = append(held, acquire(fmt.Sprint(i), wllock.WithLockTimeMax(0))) })
	}
	refused := func(wait time.Duration) {
		t.Helper()
		inTime(wait, func() { require.Error(t, l.Do(t.Context(), "n", "0", never(t), wllock.WithWait(wait))) })
	}
	refused(time.Millisecond)
	refused(100 * time.Millisecond)

	first := acquire("turn")
	next := make(chan time.Time, 1)
	go func() {
		_ = l.Do(t.Context(), "n", "turn", func(context.Context) error { next <- time.Now(); return nil })
	}()
	time.Sleep(ttl / 10)
	inTime(0, func() { require.NoError(t, first.Release(t.Context())) })
	inTime(0, func() { <-next })

	serve := wllock.WrapBatch(l, "n", func(int) string { return "batch" }, func(context.Context, []*wllock.Item[int, int]) error { return nil })
	for range 3 {
		inTime(0, func() {
			_, err := serve(t.Context(), 1)
			require.NoError(t, err)
		})
	}

	first = acquire("lost")
	b.Expire("test:n:lost")
	<-first.Context().Done()
	inTime(0, func() { _ = acquire("lost").Release(t.Context()) })
	first = acquire("over", wllock.WithLockTimeMax(time.Millisecond))
	inTime(time.Millisecond, func() { <-first.Context().Done() })
	inTime(0, func() { require.NoError(t, first.Release(t.Context())) })

	b.Partition(true)
	for begin := time.Now(); time.Since(begin) < 6*ttl/10; {
		inTime(ttl/10, func() { _ = l.Do(t.Context(), "n", "away", nothing, wllock.WithWait(ttl/10)) })
		time.Sleep(ttl / 100)
	}
	b.Partition(false)
	time.Sleep(4 * ttl)
	for i, k := range held {
		require.NoError(t, k.Err(), i)
		inTime(0, func() { require.NoError(t, k.Release(t.Context())) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), ttl/10)
	defer cancel()
	inTime(ttl/10, func() { _ = l.Close(ctx) })
	inTime(time.Second, func() { _ = l.Close(context.Background()) })
	s := l.Stats()
	require.Zero(t, s.Total.Held)
	time.Sleep(24 * time.Hour) // until all is reported
	require.NoError(t, l.Close(t.Context()))
	require.NoError(t, b.Close())
	return s
}

// What waits for telemetry that stands still keeps the values that it reports, and no hold: nor what the contexts of holds lead to.
func TestReportsThatWaitKeepNoHold(t *testing.T) {
	for _, name := range []string{"span ends", "filter of a view"} {
		t.Run(name, func(t *testing.T) {
			until := make(chan struct{})
			l, err := wllock.New("test", memlock.New(), hooks[name](func() { <-until }))
			require.NoError(t, err)
			const calls = 20
			var gone atomic.Int32
			for i := range calls {
				require.NoError(t, l.Do(t.Context(), "n", fmt.Sprint(i), func(ctx context.Context) error {
					held, _ := wllock.HeldFrom(ctx)
					runtime.AddCleanup(held, func(int) { gone.Add(1) }, 0)
					return nil
				}))
			}
			require.Eventually(t, func() bool { runtime.GC(); return gone.Load() == calls }, 5*time.Second, 10*time.Millisecond)
			close(until)
			require.NoError(t, l.Close(t.Context()))
		})
	}
}
