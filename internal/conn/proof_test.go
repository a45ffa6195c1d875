package conn

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const proofInterval = time.Second

// rehearsal is a proof between servers that the test makes up.
type rehearsal struct {
	*proof
	sent      int           // echoes, with those that were refused
	refuses   []error       // what the next ones are answered
	elsewhere bool          // commands go to another server
	leave     time.Time     // when they do
	later     time.Duration // when an echo arrives, after its pong
	dead      bool          // the subscription's connection
	lost      int           // how many subscriptions were astray before
	when      []time.Time   // of the echoes
}

// answer is an error that a server has sent.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func rehearse(expects string) *rehearsal {
	r := &rehearsal{}
	r.proof = &proof{
		publish: func(_ context.Context, channel, _, text string) error {
			r.sent++
			r.when = append(r.when, time.Now())
			if len(r.refuses) > 0 {
				err := r.refuses[0]
				r.refuses = r.refuses[1:]
				return err
			}
			if !r.elsewhere && (r.leave.IsZero() || time.Now().Before(r.leave)) {
				time.AfterFunc(r.later, func() { r.echo(text) })
			}
			return nil
		},
		ping: func(_ context.Context, text string) error {
			if !r.dead {
				r.pong(text)
			}
			return nil
		},
		expects:  func() (channel, key string) { return expects, "key" },
		heard:    func(channel string) bool { return channel == "ours" },
		interval: func() time.Duration { return proofInterval },
		astray:   &r.lost,
	}
	return r
}

// during returns what run returns, within d at most.
func (r *rehearsal) during(t *testing.T, d time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return r.run(ctx)
}

// A subscription that hears what commands publish costs one echo for each interval in which messages are expected, and nothing else.
func TestAProofCostsOneEchoEachInterval(t *testing.T) { // rule R10
	for expects, want := range map[string]int{"ours": 100, "refused to us": 0, "": 0} {
		synctest.Test(t, func(t *testing.T) {
			r := rehearse(expects)
			require.NoError(t, r.during(t, 100*proofInterval+proofInterval/2))
			require.Equal(t, want, r.sent, expects)
		})
	}
}

// A subscription that commands have left is given up within two intervals, whenever they left it.
func TestASubscriptionThatCommandsLeftIsGivenUpWithinTwoIntervals(t *testing.T) { // rule R10
	for tenths := range time.Duration(10) {
		synctest.Test(t, func(t *testing.T) {
			r := rehearse("ours")
			r.leave = time.Now().Add(5*proofInterval + tenths*proofInterval/10 + 1)
			require.ErrorIs(t, r.during(t, time.Minute), ErrAstray)
			require.Positive(t, time.Since(r.leave))
			require.LessOrEqual(t, time.Since(r.leave), 3*proofInterval/2)
			require.Equal(t, 1, r.lost)
		})
	}
}

// No subscription is given up because an echo comes late through another node, the server does not answer commands, or its connection is dead,
// which is found otherwise.
func TestOnlyAnEchoThatWasPublishedAndIsLostEndsASubscription(t *testing.T) { // rule R10
	for what, prepare := range map[string]func(r *rehearsal){
		"late echoes": func(r *rehearsal) { r.later = proofInterval / 3 },
		"silent server": func(r *rehearsal) {
			r.elsewhere, r.refuses = true, slices.Repeat([]error{errors.New("i/o timeout")}, 100)
		},
		"refusing server": func(r *rehearsal) {
			r.elsewhere, r.refuses = true, slices.Repeat([]error{answer("MISCONF")}, 100*proofTries)
		},
		"dead connection": func(r *rehearsal) { r.elsewhere, r.dead = true, true },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := rehearse("ours")
			prepare(r)
			require.NoError(t, r.during(t, 30*proofInterval+proofInterval/2), what)
			require.Positive(t, r.sent, what)
			require.Zero(t, r.lost, what)
		})
	}
}

// Pooled connections to a former primary are refused and closed: an echo is repeated at once, over the next one.
func TestARefusedEchoIsRepeatedAtOnce(t *testing.T) { // rule R10
	synctest.Test(t, func(t *testing.T) {
		r := rehearse("ours")
		r.elsewhere, r.refuses = true, slices.Repeat([]error{answer("READONLY")}, proofTries-1)
		require.ErrorIs(t, r.during(t, time.Minute), ErrAstray)
		require.Equal(t, proofTries, r.sent)
		require.Equal(t, r.when[0], r.when[proofTries-1])
	})
}

// Where nothing arrives, whatever server the subscription is opened at, it is opened anew less and less often.
func TestSubscriptionsThatHearNothingAreReplacedLessAndLessOften(t *testing.T) { // rule R10
	synctest.Test(t, func(t *testing.T) {
		r := rehearse("ours")
		r.elsewhere = true
		var pauses []time.Duration
		for range 10 {
			began := time.Now()
			require.ErrorIs(t, r.during(t, time.Hour), ErrAstray)
			pauses = append(pauses, (time.Since(began)-proofInterval/2).Round(time.Second)/time.Second)
		}
		require.Equal(t, []time.Duration{1, 1, 1, 1, 2, 4, 8, 16, 32, 32}, pauses)
		r.elsewhere = false
		require.NoError(t, r.during(t, time.Minute))
		require.Zero(t, r.lost, "one that hears something ends it")
	})
}
