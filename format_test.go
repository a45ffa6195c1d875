package wllock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

// TestWhatIsPrintedShowsNoKey: applications log what they are given, and mocks print their arguments.
func TestWhatIsPrintedShowsNoKey(t *testing.T) {
	l, _ := newLocker(t)
	print := func(what any) string {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%q", "%x"} {
			_, _ = fmt.Fprintf(&out, verb+"\n", what)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("", "what", what)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("", "what", what)
		_ = json.NewEncoder(&out).Encode(what)
		_, _ = fmt.Fprintf(&out, "%v (%[2]T=%[2]v)", []any{what}, what) // the latter as testify's mocks do
		return out.String()
	}
	var nested string
	require.NoError(t, l.Do(context.Background(), "outer", "secret-1", func(outer context.Context) error {
		return l.Do(outer, "inner", "secret-2", func(inner context.Context) error {
			held, _ := wllock.HeldFrom(inner)
			child, cancel := context.WithCancel(context.WithValue(inner, ctxKey{}, 1))
			defer cancel()
			require.NotContains(t, fmt.Sprintf("%v %+v %s", child, child, child), "secret")
			require.Equal(t, "context.Background.wllock(outer).wllock(inner)", fmt.Sprint(inner))
			lock, err := l.Acquire(inner, "outer", "secret-1")
			require.NoError(t, err)
			defer func() { require.NoError(t, lock.Release(inner)) }()
			nested = fmt.Sprint(lock.Context())
			for _, what := range []any{outer, inner, held, *held, lock, lock.Context(), l} {
				require.NotContains(t, print(what), "secret")
			}
			require.Equal(t, "wllock.Held(test:inner)", fmt.Sprint(held))
			require.Equal(t, "wllock.Held(test:outer)", fmt.Sprint(lock))
			return nil
		})
	}))
	require.Equal(t, "context.Background.wllock(outer).wllock(inner).wllock(outer)", nested)
	require.Equal(t, "wllock.Locker(test)", fmt.Sprint(l))
}

type ctxKey struct{}

// TestPrintingIsNoRace is for the race detector: others use the hold and the Locker meanwhile.
func TestPrintingIsNoRace(t *testing.T) {
	l, _ := newLocker(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 100 {
				_ = l.Do(context.Background(), "n", strconv.Itoa(i), func(ctx context.Context) error {
					held, _ := wllock.HeldFrom(ctx)
					_ = fmt.Sprintf("%v %+v %#v %v %#v %v", ctx, ctx, ctx, held, held, l)
					return nil
				})
				_ = l.SetThreshold("", i)
			}
		})
	}
	wg.Wait()
}
