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
	before := len(fb.asked)
	require.Equal(f.t, "held", f.arriveAs(tenure.Ask{Mode: exclusive, NoWait: true}).state())
	return len(fb.asked) - before
}

// A caller with NoWait takes a place when it is refused, until the holder has learned of it; what is granted is given back. It
// does so once per T.
func TestARefusalReachesAHolderThatLingers(t *testing.T) {
	const learned = ttl/3 + ttl/6
	for name, then := range map[string]func(f *fixture, fb *fakeBackend){
		"the holder goes on": func(f *fixture, fb *fakeBackend) {
			time.Sleep(learned - 1)
			synctest.Wait()
			require.Zero(t, fb.place(0).left())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
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
		bubble(t, name, func(t *testing.T) {
			fb := new(fakeBackend)
			f := newFixture(t, fb, lingering(linger))
			require.Equal(t, 2, f.refusedBy(fb, distributed.ErrHeld))
			require.True(t, f.inUse(), "Close waits for the place")
			require.Equal(t, 1, f.refusedBy(fb, distributed.ErrHeld), "once per T")
			then(f, fb)
			require.False(t, f.inUse())
			time.Sleep(ttl)
			f.close()
		})
	}
}

// Nobody asks twice where the backend tells the holder, or no lease lingers.
func TestARefusalThatNeedNotReachAHolder(t *testing.T) {
	bubble(t, "told", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb, lingering(linger))
		require.Equal(t, 1, f.refusedBy(fb, distributed.HeldAndTold("other")))
		f.close()
	})
	bubble(t, "without lingering", func(t *testing.T) {
		fb := new(fakeBackend)
		f := newFixture(t, fb)
		require.Equal(t, 1, f.refusedBy(fb, distributed.ErrHeld))
		f.close()
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
		bubble(t, name, func(t *testing.T) {
			fb := new(fakeBackend)
			f := newFixture(t, fb)
			if test.givenUp {
				fb.answerWith(hangs)
				c := f.arriveAs(tenure.Ask{Mode: exclusive, Deadline: time.Now().Add(time.Millisecond)})
				time.Sleep(time.Millisecond)
				synctest.Wait()
				require.Equal(t, "timeout", c.state())
			}
			before := len(fb.asked)
			fb.answerWith(test.script...)
			c := f.arriveAs(tenure.Ask{Mode: exclusive, NoWait: true})
			time.Sleep(ttl / 6)
			synctest.Wait()
			require.Equal(t, test.state, c.state())
			require.Len(t, fb.asked, before+test.asked)
			if test.state == "in" {
				c.leave()
			}
			f.close()
		})
	}
}
