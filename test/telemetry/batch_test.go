package telemetry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testlocker"
)

// batchOf lets n callers ride in one batch that runs work.
func batchOf(t *testing.T, l *wllock.Locker, n int, work func(context.Context) error) {
	release := testlocker.Hold(t, l, "n", "secret-key")
	call := wllock.WrapBatch(l, "n", func(int) string { return "secret-key" },
		func(ctx context.Context, _ []*wllock.Item[int, int]) error { return work(ctx) })
	for i := range n {
		go func() { _, _ = call(context.Background(), i) }()
		synctest.Wait()
	}
	release()
	synctest.Wait()
}

func TestABatchIsOneRootSpanLinkedToItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, spans := recording()
		l, _ := newLocker(t, spans, wllock.WithSpanKeys())
		var inside oteltrace.SpanContext
		batchOf(t, l, 3, func(ctx context.Context) error {
			inside = oteltrace.SpanContextFromContext(ctx)
			return errors.New("failed")
		})
		callers := map[oteltrace.SpanID]bool{}
		batch := ended(t, recorder, "wllock.batch", 1)[0]
		for _, s := range ended(t, recorder, "wllock.hold", 4)[1:] {
			require.WithinRange(t, batch.StartTime(), s.StartTime(), s.EndTime(), "the batch is a part of the hold of each")
		}
		for _, s := range ended(t, recorder, "wllock.acquire", 4)[1:] {
			callers[s.SpanContext().SpanID()] = true
			require.Equal(t, "queued", s.Events()[0].Name)
			require.Equal(t, "acquired", s.Events()[1].Name)
		}
		require.Equal(t, batch.SpanContext(), inside, "the function's spans belong to that of the batch")
		require.False(t, batch.Parent().IsValid())
		require.Len(t, batch.Links(), 3)
		for _, link := range batch.Links() {
			require.True(t, callers[link.SpanContext.SpanID()])
		}
		require.Equal(t, codes.Error, batch.Status().Code)
		for _, a := range []attribute.KeyValue{attribute.Int("wllock.batch.size", 3), attribute.String("wllock.key", "test:n:secret-key"),
			attribute.String("wllock.name", "n"), attribute.String("wllock.system", "test")} {
			require.Contains(t, batch.Attributes(), a)
		}
	})
}

func TestSizesOfBatchesAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, metrics := measuring()
		l, _ := newLocker(t, metrics)
		for _, n := range []int{1, 3, 3} {
			batchOf(t, l, n, nothing)
		}
		sums := counts(t, reader)
		require.EqualValues(t, 2*3+2*3+4, sums["wllock.acquire.duration"], "both tiers of blockers and leaders, and the wait of riders")
		require.EqualValues(t, 6, sums["wllock.hold.duration"])
		sizes := collect(t, reader)["wllock.batch.size"].(metricdata.Histogram[int64])
		require.EqualValues(t, 3, sizes.DataPoints[0].Count)
		require.EqualValues(t, 7, sizes.DataPoints[0].Sum)
	})
}
