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
	if b.echoes.Add(1) > manyEchoes {
		restless("the judge goes on asking what is answered at once")
	}
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

// restless ends the tests of this package at once: a judge that goes on asking, or a caller that is never answered, does not let
// a bubble end, so the tests that follow would hang until go test gives up. This file is the first one.
func restless(why string) {
	_, _ = fmt.Fprintf(os.Stderr, "--- FAIL: %s; the other tests would not end\n", why)
	os.Exit(1)
}

// manyEchoes are more than any test needs.
const manyEchoes = 1000

// TestAJudgeRestsWhenAllIsAnswered: an answer leaves no question open, however it is reported.
func TestAJudgeRestsWhenAllIsAnswered(t *testing.T) {
	o := newObservable(up)
	for name, b := range map[string]distributed.Backend{
		"answers that take no time": atOnce{o}, "answers that take a while": newObservable(after(time.Millisecond)),
		"a backend that cannot be observed": newFake(up, up),
	} {
		judged(t, name, b, time.Second, func(t *testing.T, k *outage.Breaker) {
			for range 3 {
				_, _, err := k.Enter(t.Context(), distributed.Request{})
				require.NoError(t, err)
				time.Sleep(20 * time.Second)
				if why := k.Suspect(); why != nil {
					restless("TestAJudgeRestsWhenAllIsAnswered: " + name + ": " + why.Error())
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

// TestTheDecisionEndsWhatIsUnderWay, before its callers give up.
func TestTheDecisionEndsWhatIsUnderWay(t *testing.T) {
	judged(t, "", newObservable(silently), time.Second, func(t *testing.T, k *outage.Breaker) {
		began := time.Now()
		_ = enter(k, time.Minute)
		if took := time.Since(began); took > 20*time.Second {
			restless(fmt.Sprintf("TestTheDecisionEndsWhatIsUnderWay: answered after %v", took))
		}
	})
}

// held is an atOnce whose echoes wait until they may be answered.
type held struct {
	atOnce
	answer chan struct{}
}

func (b held) Echo(context.Context) error {
	<-b.answer
	return b.answered()
}

// TestAnAnswerAtOnceEndsAnOutage, with no other exchange after it.
func TestAnAnswerAtOnceEndsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := held{atOnce{newObservable(unreached)}, make(chan struct{})}
		k := outage.NewBreaker(outage.Config{Backend: b, TTL: time.Second, Logger: silent})
		defer k.Stop()
		b.report(time.Now(), unreached(t.Context()))
		require.Error(t, k.Suspect())
		close(b.answer) // to the judge, which asks at once
		synctest.Wait()
		require.NoError(t, k.Suspect())
	})
}
