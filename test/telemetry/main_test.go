package telemetry_test

import (
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testlocker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = testlocker.TTL

var (
	newLocker = testlocker.New
	lockerOn  = testlocker.On
	nothing   = testlocker.Nothing
	never     = testlocker.Never
	lostAfter = testlocker.LostAfter
)

// recording is an option of a Locker whose spans are recorded.
func recording() (*tracetest.SpanRecorder, wllock.Option) {
	recorder := tracetest.NewSpanRecorder()
	return recorder, traced(trace.WithSpanProcessor(recorder))
}

// measuring is an option of a Locker whose metrics can be read.
func measuring() (metric.Reader, wllock.Option) {
	reader := metric.NewManualReader()
	return reader, wllock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
}
