package live

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop is a service with so many locks, of which one after the other is longer held; each page takes a while.
type shop struct {
	distributed.Inspector
	locks           int
	took            time.Duration
	listed, inspect atomic.Int64
	away            atomic.Bool
}

func (s *shop) lock(n int) distributed.Inspection {
	return distributed.Inspection{
		Key: fmt.Sprintf("shop:n:%06d", n), Since: time.Now().Add(-time.Duration(n) * time.Millisecond),
		Holders: []distributed.Holder{{Instance: "web"}}, MoreWaiters: n / (s.locks - 1),
	}
}

func (s *shop) List(ctx context.Context, _, cursor string, limit int) (page []distributed.Inspection, next string, err error) {
	time.Sleep(s.took)
	if s.away.Load() || ctx.Err() != nil {
		return nil, "", errors.New("away")
	}
	at, _ := strconv.Atoi(cursor)
	for len(page) < limit && at < s.locks {
		page = append(page, s.lock(at))
		at++
	}
	s.listed.Add(int64(len(page)))
	if at == s.locks {
		return page, "", nil
	}
	return page, strconv.Itoa(at), nil
}

func (s *shop) Inspect(_ context.Context, key string) (distributed.Inspection, error) {
	s.inspect.Add(1)
	time.Sleep(s.took)
	var n int
	_, err := fmt.Sscanf(key, "shop:n:%d", &n)
	found := s.lock(n)
	if found.MoreWaiters > 0 { // of which a list has no names
		found.MoreWaiters, found.Waiters = 0, []distributed.Waiter{{Instance: "db"}}
	}
	return found, err
}

// However many locks there are, the first screen comes soon, and then the service does little.
func TestReaderKeepsItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{locks: 100_000, took: 3 * time.Millisecond}
		r := newReader(s, Options{Prefix: "shop:", Shown: strings.Clone, Interval: 2 * time.Second})
		began := time.Now()
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			r.run(ctx)
		}()
		<-r.changed
		require.Less(t, time.Since(began), time.Second)
		atFirst := s.listed.Load()
		time.Sleep(10 * time.Second)
		require.LessOrEqual(t, s.listed.Load()-atFirst, int64(10*pace+perPage))
		v := r.first(20, time.Now())
		require.False(t, v.Complete)
		time.Sleep(20 * time.Second)
		v = r.first(20, time.Now())
		require.True(t, v.Complete)
		require.Equal(t, 100_000, v.Held)
		require.Equal(t, "shop:n:099999", v.Locks[0].Key) // for which one waits
		inspected := s.inspect.Load()
		time.Sleep(10 * time.Second)
		require.InDelta(t, 5*20, s.inspect.Load()-inspected, 20) // those on the screen
		cancel()
		<-done
	})
}

// What is free disappears, and what the service does not tell stays with the error.
func TestReaderForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{locks: 3}
		r := newReader(s, Options{Prefix: "shop:", Shown: strings.Clone, Interval: time.Second})
		require.True(t, r.readAll(t.Context(), time.Now()))
		r.forget()
		r.begin()
		r.note([]distributed.Inspection{s.lock(2)}, nil, time.Now()) // and then the pass was broken off
		s.locks = 2
		require.True(t, r.readAll(t.Context(), time.Now()))
		r.forget()
		require.Equal(t, 2, r.first(9, time.Now()).Held)
		r.update(distributed.Inspection{Key: "shop:n:000001"}, time.Now())
		require.Equal(t, 1, r.first(9, time.Now()).Held)
		s.away.Store(true)
		require.False(t, r.readAll(t.Context(), time.Now()))
		v := r.first(9, time.Now())
		require.Equal(t, 1, v.Held)
		require.ErrorContains(t, v.Err, "away")
	})
}

// A question that is not waited for is no fault of the backend.
func TestReaderIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(&shop{locks: 3, took: time.Second}, Options{Prefix: "shop:", Shown: strings.Clone, Interval: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		require.False(t, r.readAll(ctx, time.Now()))
		time.Sleep(2 * silence)
		require.NoError(t, r.first(9, time.Now()).Err)
	})
}

// What Inspect tells of a lock on a screen is asked for once in an interval, and lists, which tell less, do not undo it.
func TestReaderNamesWaiters(t *testing.T) {
	r, now := newReader(nil, Options{Shown: strings.Clone, Interval: time.Second}), time.Now()
	listed := distributed.Inspection{Key: "shop:n:1", Holders: []distributed.Holder{{Instance: "web"}}, MoreWaiters: 1}
	named := listed
	named.MoreWaiters, named.Waiters = 0, []distributed.Waiter{{Instance: "db"}}
	list := func() { r.note([]distributed.Inspection{listed}, nil, now) }
	list()
	require.NotNil(t, r.show(r.all(now).Locks, now), "names are to come")
	require.Equal(t, []string{"shop:n:1"}, r.due(now))
	r.update(named, now)
	list()
	require.Nil(t, r.show(r.all(now).Locks, now))
	require.Equal(t, named.Waiters, r.all(now).Locks[0].Waiters)
	require.Empty(t, r.due(now))

	now = now.Add(3 * r.interval)
	require.Equal(t, []string{"shop:n:1"}, r.due(now))
	list()
	require.Empty(t, r.all(now).Locks[0].Waiters, "they were named too long ago")
	now = now.Add(3 * r.interval)
	require.Empty(t, r.due(now), "it is on no screen")
}
