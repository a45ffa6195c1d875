package distributed_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wllock/wllock/distributed"
)

// plain hides all of a lease that is more than the contract.
type plain struct{ distributed.Lease }

func TestWatchedLeaseStaysItself(t *testing.T) {
	s := serve(renewed)
	defer s.Close()
	l := s.grant()
	assert.Same(t, l, distributed.AsWatched(l))
	assert.Same(t, l, distributed.Unwatched(l))
}

func TestPlainLeaseIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := serve(renewed), new(witness)
		defer s.Close()
		original := &plain{s.grant()}
		l := distributed.AsWatched(original)
		l.Watch(w)
		l.StartRelease()
		synctest.Wait()
		assert.Equal(t, []error{nil}, w.released)
		assert.Same(t, original, distributed.Unwatched(l))
		assert.NoError(t, l.Release(context.Background()), "again")
		time.Sleep(ttl)
		synctest.Wait()
		assert.Empty(t, w.lost)
	})
}

// An Enter that names the lease as Prev gives it up, and only its caller can tell the watch.
func TestPlainLeaseIsGivenUpAsPrev(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // complains of a goroutine that is left
		s, w := serve(renewed), new(witness)
		defer s.Close()
		original := s.grant()
		l := distributed.AsWatched(&plain{original})
		l.Watch(w)
		original.Finish()
		distributed.GivenUp(l)
		time.Sleep(ttl)
		assert.Empty(t, w.lost)
	})
}

func TestPlainLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := serve(ended), new(witness)
		defer s.Close()
		l := distributed.AsWatched(&plain{s.grant()})
		l.Watch(w)
		time.Sleep(ttl)
		synctest.Wait()
		assert.Equal(t, []distributed.Watched{l}, w.lost)
		l.StartRelease()
		synctest.Wait()
		assert.Equal(t, []error{distributed.ErrLeaseLost}, w.released)
	})
}
