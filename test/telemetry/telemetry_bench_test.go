package telemetry_test

import (
	"context"
	"testing"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/wllock/wllock"
)

// BenchmarkTelemetry is BenchmarkDo by who measures: nobody, providers that do nothing, and the SDK.
func BenchmarkTelemetry(b *testing.B) {
	for _, who := range []struct {
		name string
		opts []wllock.Option
	}{
		{"none", nil},
		{"noop", []wllock.Option{
			wllock.WithMeterProvider(metricnoop.NewMeterProvider()), wllock.WithTracerProvider(tracenoop.NewTracerProvider())}},
		{"metrics", []wllock.Option{wllock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())))}},
		{"spans", []wllock.Option{wllock.WithTracerProvider(trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample())))}},
	} {
		b.Run(who.name, func(b *testing.B) {
			l, _ := newLocker(b, append(who.opts, wllock.WithLeaseTTL(wllock.DefaultLeaseTTL))...)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				_ = l.Do(ctx, "product", "1000", nothing)
			}
		})
	}
}
