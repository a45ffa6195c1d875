package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/debug"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/middleware/httpguard"
)

// account is a key that nobody may see, and hash is what stands for it.
const account, hash = "iban-Qx42 \"zwoJk\"", "#8f2c"

func redact(key string) string {
	if key == account {
		return hash
	}
	return "#other"
}

// telling is a backend whose errors have the key, as some services' have.
type telling struct {
	distributed.Inspector
	memory *memlock.Backend

	mu   sync.Mutex
	mute bool // guarded by mu; it refuses instead of working
}

func (b *telling) refuse(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mute = on
}

func (b *telling) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	b.mu.Lock()
	mute := b.mute
	b.mu.Unlock()
	if mute {
		row := strings.SplitN(req.Key, ":", 3)[2]
		return nil, nil, distributed.Unavailable("insert", fmt.Errorf("the row %s is twice: %q", row, req.Key), distributed.ErrRefused)
	}
	lease, place, err := b.memory.Enter(ctx, req)
	return lease, place, told(err, req.Key)
}

func (b *telling) Ping(ctx context.Context) error { return told(b.memory.Ping(ctx), "test:n:"+account) }

func (b *telling) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	found, err := b.memory.Inspect(ctx, key)
	return found, told(err, key)
}

func told(err error, key string) error {
	if !errors.Is(err, distributed.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("'%s': %w", key, err)
}

// texts is all that leaves a process. A key that is shown in any form fails the test.
type texts struct {
	t   *testing.T
	mu  sync.Mutex
	all bytes.Buffer // guarded by mu: loggers have goroutines of their own
}

func (x *texts) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all.Write(p)
}

func (x *texts) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all.String()
}

// error adds an error in all forms that programs print it in.
func (x *texts) error(err, is error) {
	x.t.Helper()
	require.ErrorIs(x.t, err, is)
	fmt.Fprintf(x, "%v\n%+v\n%s\n", err, err, err)
	slog.New(slog.NewJSONHandler(x, nil)).Error("failed", "error", err)
	if e, ok := errors.AsType[*wllock.Error](err); ok {
		fmt.Fprintf(x, "%#v\n%v\n", e, e.Err)
		text, _ := json.Marshal(e)
		_, _ = x.Write(append(text, '\n'))
	}
}

func (x *texts) page(l *wllock.Locker) {
	for _, format := range []string{"html", "text", "json"} {
		w := httptest.NewRecorder()
		debug.Handler(l).ServeHTTP(w, httptest.NewRequestWithContext(x.t.Context(), http.MethodGet, "/?format="+format, nil))
		require.Equal(x.t, http.StatusOK, w.Code)
		_, _ = x.Write(w.Body.Bytes())
	}
	stats := l.Stats()
	fmt.Fprintf(x, "%+v\n%v\n%+v\n", stats, stats.Backend.Err, l.Locks(9))
}

// Every way of a call ends in texts, and none has the key.
func TestRedactedKeysLeaveTheProcessNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &texts{t: t}
		recorder, spans := recording()
		reader, metrics := measuring()
		memory := memlock.New()
		b := &telling{Inspector: memory, memory: memory}
		opts := []wllock.Option{
			wllock.WithKeyRedaction(redact), wllock.WithSpanKeys(), wllock.WithThreshold(1), spans, metrics,
			wllock.WithLogger(slog.New(slog.NewTextHandler(x, &slog.HandlerOptions{Level: slog.LevelDebug}))),
		}
		l, other := testlocker.On(t, b, opts...), testlocker.On(t, b)
		ctx := t.Context()
		every(t, x, l, other)
		batches(t, x, l)
		losses(t, x, l, other, b)

		release := testlocker.Hold(t, other, "n", account)
		h := httpguard.New(l, "n", func(*http.Request) (string, error) { return account, nil }, httpguard.WithCallOptions(wllock.NoWait()),
			httpguard.WithResponder(func(w http.ResponseWriter, r *http.Request, _ int, err error) {
				x.error(err, wllock.ErrHeld)
				httpguard.Respond(w, r, err)
			}))(http.NotFoundHandler())
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		require.Equal(t, http.StatusConflict, answer.Code)
		fmt.Fprintln(x, answer.Header(), answer.Body)
		release()

		k, err := l.Acquire(ctx, "n", account)
		require.NoError(t, err)
		x.page(l)
		fmt.Fprintf(x, "%v %+v %v\n", k, k.Context(), l)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		x.error(l.Close(ended), context.Canceled)
		_ = k.Release(ctx)
		require.NoError(t, l.Close(ctx))

		for _, s := range recorder.Ended() {
			fmt.Fprintln(x, s.Name(), s.Attributes(), s.Events(), s.Status())
		}
		var measured metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(ctx, &measured))
		fmt.Fprintf(x, "%+v\n", measured)
		seen := x.String()
		for line := range strings.Lines(seen) {
			assert.NotRegexp(t, "iban|Qx42|zwoJk", line)
		}
		for _, shown := range []string{
			`acquire "test:n:` + hash, `hold "test:n:` + hash, `batch "test:n:` + hash, `release "test:n:` + hash,
			`acquire "test:m:` + hash + `": lease lost`,
			`"Key":"test:n:` + hash, `"key":"test:n:` + hash, "wllock.key", "wllock.keys", "still held", "backend refuses", "backend is away",
			"lock lost while held", "lock was broken", "lock held for longer than its maximum", "cannot lead while the backend is unavailable",
		} {
			assert.Contains(t, seen, shown)
		}
	})
}

// every makes calls of all kinds, that succeed and that are refused.
func every(t *testing.T, x *texts, l, other *wllock.Locker) {
	ctx, both := t.Context(), []wllock.Resource{{Name: "n", Key: account}, {Name: "m", Key: account}}
	require.NoError(t, l.Do(ctx, "n", account, func(ctx context.Context) error {
		x.page(l)
		x.error(l.Do(ctx, "m", "\x00"+account, never(t)), wllock.ErrInvalidKey)
		x.error(l.DoAll(ctx, []wllock.Resource{{Name: "a", Key: account}, {Name: "n", Key: account}}, never(t)), wllock.ErrLockOrder)
		return l.Do(ctx, "n", account, nothing)
	}))
	require.NoError(t, l.Do(ctx, "n", account, func(ctx context.Context) error {
		x.error(l.Do(ctx, "n", account, never(t)), wllock.ErrUpgrade)
		return nil
	}, wllock.Shared()))
	require.NoError(t, l.DoAll(ctx, both, nothing))
	require.NoError(t, l.Do(ctx, "n", account, nothing, wllock.Permits(2)))
	require.NoError(t, l.Lead(ctx, "n", account, nothing))
	batch := wllock.WrapBatch(l, "n", func(string) string { return account },
		func(context.Context, []*wllock.Item[string, int]) error { return nil })
	_, err := batch(ctx, account)
	require.NoError(t, err)
	for _, err := range []error{l.Do(ctx, "n", account, nil), l.DoAll(ctx, both, nil), l.Lead(ctx, "n", account, nil)} {
		require.ErrorContains(t, err, "function is nil")
		x.error(err, err)
	}
	assert.Panics(t, func() { _ = l.Do(ctx, "n", account, func(context.Context) error { panic("in fn") }) })

	release := testlocker.Hold(t, other, "n", account)
	x.error(l.Do(ctx, "n", account, never(t), wllock.NoWait()), wllock.ErrHeld)
	x.error(l.Do(ctx, "n", account, never(t), wllock.WithWait(time.Second), wllock.Permits(2)), wllock.ErrWaitTimeout)
	x.error(l.DoAll(ctx, both, never(t), wllock.WithWait(time.Second)), wllock.ErrWaitTimeout)
	for range 2 { // one at the backend, one in the queue
		go func() { _ = l.Do(ctx, "n", account, nothing) }()
	}
	synctest.Wait()
	x.page(l)
	x.error(l.Do(ctx, "n", account, never(t)), wllock.ErrQueueFull)
	release()
	synctest.Wait()
	x.error(l.Do(ctx, "n", account, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, wllock.WithLockTimeMax(time.Second)),
		wllock.ErrLockTimeMax)
}

// batches has a caller leave a batch that has taken it along.
func batches(t *testing.T, x *texts, l *wllock.Locker) {
	running, left := make(chan struct{}), make(chan error, 2)
	batch := wllock.WrapBatch(l, "n", func(string) string { return account }, func(context.Context, []*wllock.Item[string, int]) error {
		<-running
		return nil
	}, wllock.WithCallThreshold(2))
	ctx, cancel := context.WithCancel(t.Context())
	release := testlocker.Hold(t, l, "n", account)
	for _, ctx := range []context.Context{t.Context(), ctx} {
		go func() {
			_, err := batch(ctx, account)
			left <- err
		}()
		synctest.Wait()
	}
	release()
	synctest.Wait()
	cancel()
	x.error(<-left, context.Canceled)
	close(running)
	require.NoError(t, <-left)
}

// losses loses locks, by a break and by an outage, after which the backend refuses.
func losses(t *testing.T, x *texts, l, other *wllock.Locker, b *telling) {
	ctx := t.Context()
	release, ended := testlocker.Hold(t, other, "n", account), make(chan error)
	go func() {
		ended <- l.DoAll(ctx, []wllock.Resource{{Name: "m", Key: account}, {Name: "n", Key: account}}, never(t))
	}()
	for range 4 { // more often than it starts over
		synctest.Wait()
		b.memory.Expire("test:m:" + account)
		time.Sleep(ttl)
	}
	release()
	x.error(<-ended, wllock.ErrLeaseLost)
	x.error(l.Do(ctx, "n", account, func(ctx context.Context) error {
		found, err := b.Inspect(ctx, "test:n:"+account)
		require.NoError(t, err)
		_, err = b.Break(ctx, found, "ops", "hangs for "+account)
		require.NoError(t, err)
		<-ctx.Done()
		return nil
	}), wllock.ErrLeaseLost)
	b.refuse(true)
	x.error(l.Do(ctx, "n", account, never(t)), wllock.ErrUnavailable)
	x.page(l)
	x.error(l.Do(ctx, "n", "another", never(t)), wllock.ErrUnavailable)
	b.refuse(false)

	k, err := l.Acquire(ctx, "n", account)
	require.NoError(t, err)
	b.memory.Partition(true)
	x.error(k.Release(ctx), wllock.ErrUnavailable)
	_, err = l.Inspect(ctx, "n", account)
	x.error(err, wllock.ErrUnavailable)
	for range 20 {
		x.error(l.Do(ctx, "n", account, never(t)), wllock.ErrUnavailable)
		time.Sleep(ttl)
	}
	x.error(l.Do(ctx, "n", "another", never(t)), wllock.ErrUnavailable) // the last error of the backend was about the other key
	x.page(l)
	short, cancel := context.WithTimeout(ctx, ttl)
	defer cancel()
	x.error(l.Lead(short, "n", account, never(t)), context.DeadlineExceeded)
	b.memory.Partition(false)
	time.Sleep(time.Minute)
}
