package tenure_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/tenure"
)

// refusedBy has a caller with NoWait refused by a backend that queues whoever asks again, and returns how often it was asked.
func (f *fixture) refusedBy(fb *fakeBackend, err error) (asked int) {
	fb.answerWith(fails(err), queues)
	defer fb.answerWith()
	before := fb.count()
	require.Equal(f.t, "held", f.arriveAs(noWait).state())
	return fb.count() - before
}

// A caller with NoWait takes a place when it is refused, until the holder has learned of it; what is granted is given back. It
// does so once per T.
func TestARefusalReachesAHolderThatLingers(t *testing.T) {
	const learned = ttl/3 + ttl/6
	for name, then := range map[string]func(f *fixture, fb *fakeBackend){
		"the holder goes on": func(f *fixture, fb *fakeBackend) {
			sleep(learned - 1)
			require.Zero(t, fb.place(0).left())
			sleep(time.Nanosecond)
			require.Equal(t, 1, fb.place(0).left())
		},
		"the lock is granted": func(f *fixture, fb *fakeBackend) {
			l := fb.grant()
			fb.place(0).granted <- l
			synctest.Wait()
			require.Equal(t, 1, l.releases())
		},
		"the place is lost": func(f *fixture, fb *fakeBackend) { close(fb.place(0).granted); synctest.Wait() },
		"close":             func(f *fixture, fb *fakeBackend) { f.shut(); synctest.Wait(); require.Equal(t, 1, fb.place(0).left()) },
	} {
		with(lingering(linger)).over(t, name, func(t *testing.T, f *fixture, fb *fakeBackend) {
			require.Equal(t, 2, f.refusedBy(fb, distributed.ErrHeld))
			require.True(t, f.inUse(), "Close waits for the place")
			require.Equal(t, 1, f.refusedBy(fb, distributed.ErrHeld), "once per T")
			then(f, fb)
			require.False(t, f.inUse())
			time.Sleep(ttl)
		})
	}
}

// Nobody asks twice where the backend tells the holder, or no lease lingers.
func TestARefusalThatNeedNotReachAHolder(t *testing.T) {
	with(lingering(linger)).over(t, "told", func(t *testing.T, f *fixture, fb *fakeBackend) {
		require.Equal(t, 1, f.refusedBy(fb, distributed.HeldAndTold("other")))
	})
	over(t, "without lingering", func(t *testing.T, f *fixture, fb *fakeBackend) {
		require.Equal(t, 1, f.refusedBy(fb, distributed.ErrHeld))
	})
}

// A request that was given up before its answer may hold the lock until the backend has removed it: it does not refuse a caller of its own
// instance.
func TestARequestThatWasGivenUpDoesNotRefuseItsInstance(t *testing.T) {
	ours := fails(&distributed.HeldError{Holder: "here"})
	for name, test := range map[string]struct {
		givenUp bool
		script  []answer
		state   string
		asked   int
	}{
		"for a moment": {true, []answer{ours, ours, ours}, "in", 4},
		"of another":   {true, []answer{fails(&distributed.HeldError{Holder: "there"}), ours}, "held", 1},
		"not given up": {false, []answer{ours, ours}, "held", 1},
	} {
		over(t, name, func(t *testing.T, f *fixture, fb *fakeBackend) {
			if test.givenUp {
				fb.answerWith(hangs)
				c := f.arriveAs(tenure.Ask{Mode: exclusive, Deadline: time.Now().Add(time.Millisecond)})
				sleep(time.Millisecond)
				require.Equal(t, "timeout", c.state())
			}
			before := fb.count()
			fb.answerWith(test.script...)
			c := f.arriveAs(noWait)
			sleep(ttl / 6)
			require.Equal(t, test.state, c.state())
			require.Equal(t, before+test.asked, fb.count())
		})
	}
}
