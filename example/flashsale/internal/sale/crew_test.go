package sale

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/wrap"
	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

func TestWhatBuyersSaw(t *testing.T) {
	away := fmt.Errorf("acquire: %w", distributed.ErrUnavailable)
	for _, c := range []struct {
		err  error
		want Result
		told int // to come back later, with the time
	}{
		{nil, Result{Bought: 1}, 0},
		{sqlshop.ErrSoldOut, Result{Counts: Counts{SoldOut: 1}}, 0},
		{errTryLater, Result{Counts: Counts{Refused: 1}}, 1},
		{sqlshop.ErrContended, Result{Counts: Counts{Refused: 1}}, 1},
		{away, Result{Counts: Counts{Away: 1, Failure: away.Error()}}, 1},
		{errors.New("x"), Result{Counts: Counts{Failed: 1, Failure: "x"}}, 0},
	} {
		one := &crew{}
		one.answer(time.Now(), time.Time{}, c.err)
		got := one.result
		assert.Len(t, got.Told, c.told, c.err)
		assert.Equal(t, 1, got.Answered())
		got.Told, got.Answers, got.Selling = nil, nil, 0
		assert.Equal(t, c.want, got)
	}
}

// deaf is a lock service that goes away before a release.
type deaf struct{ distributed.Observable }

func (d deaf) Enter(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
	lease, place, err := d.Observable.Enter(ctx, r)
	return wrap.Releasing(lease, func(context.Context) error { return distributed.ErrUnavailable }), place, err
}

func TestAnOrderStandsWhenItsReleaseFails(t *testing.T) {
	task, office := newTask(t)
	require.NoError(t, office.Stock(t.Context(), Rounds[1].Title, 1))
	task.program, task.TTL = &program, time.Minute
	one := &crew{Task: task, Stall: task.Stalls[0], way: Rounds[1]}
	require.NoError(t, one.open(t.Context()))
	defer one.close()
	one.link.Observable = deaf{one.link.Observable}
	_, err := withBackendOnly(t.Context(), &instance{crew: one}, "b")
	assert.NoError(t, err)
}

// Visitors come while earlier ones wait, otherwise a database that stands still would be asked once.
func TestVisitorsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		over := make(chan struct{})
		time.AfterFunc(4*visitInterval+visitInterval/2, func() { close(over) })
		waits := visitors(t.Context(), over, func(context.Context) {
			if n.Add(1) == 2 {
				return // no connection
			}
			time.Sleep(time.Second)
		})
		assert.Len(t, waits, 5)
		assert.Contains(t, waits, time.Second)
	})
}
