package outage_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/outage"
)

// atOnce is a backend whose answers take no time: it reports them without a time.
type atOnce struct{ *observable }

func (b atOnce) Echo(context.Context) error {
	b.echoes.Add(1)
	return b.answered()
}

func (b atOnce) Enter(ctx context.Context, _ distributed.Request) (distributed.Lease, distributed.Place, error) {
	if err := (*b.answer.Load())(ctx); err != nil {
		b.report(time.Now(), err)
		return nil, nil, err
	}
	return newFakeLease(time.Hour), nil, b.answered()
}

func (b atOnce) answered() error {
	b.tell(distributed.Exchange{})
	return nil
}

// restless ends the tests of this package at once: a judge that goes on asking never lets a bubble end, so the tests that
// follow would hang until go test gives up. This file is the first one.
func restless(t *testing.T, why string) {
	t.Helper()
	_, _ = fmt.Fprintf(os.Stderr, "--- FAIL: %s: %s; the other tests would not end\n", t.Name(), why)
	os.Exit(1)
}

// TestAJudgeRestsWhenAllIsAnswered: an answer leaves no question open, however it is reported.
func TestAJudgeRestsWhenAllIsAnswered(t *testing.T) {
	o := newObservable(up)
	for name, b := range map[string]distributed.Backend{
		"answers that take no time": atOnce{o}, "answers that take a while": newObservable(after(time.Millisecond)),
		"a backend that cannot be observed": &fakeBackend{enter: up},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := outage.NewBreaker(outage.Config{Backend: b, TTL: time.Second, Logger: silent})
			defer k.Stop()
			for range 3 {
				_, _, err := k.Enter(t.Context(), distributed.Request{})
				require.NoError(t, err)
				time.Sleep(20 * time.Second)
				if why := k.Suspect(); why != nil {
					restless(t, name+": "+why.Error())
				}
			}
			switch b := b.(type) {
			case atOnce:
				require.Zero(t, b.echoes.Load())
			case *observable:
				require.Zero(t, b.echoes.Load())
			}
		})
	}
}

// TestAnAnswerAtOnceEndsAnOutage, with no other exchange after it.
func TestAnAnswerAtOnceEndsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := atOnce{newObservable(unreached)}
		k := outage.NewBreaker(outage.Config{Backend: b, TTL: time.Second, Logger: silent})
		defer k.Stop()
		b.report(time.Now(), unreached(t.Context()))
		require.Error(t, k.Suspect())
		_ = b.answered()
		require.NoError(t, k.Suspect())
	})
}
