package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/wllocktest"
)

func TestTransfersInBothDirections(t *testing.T) {
	t.Parallel()
	pool := database(t, `INSERT INTO accounts (id, balance) VALUES ('a', 1000), ('b', 1000)`)
	guard := fences(t, pool)
	inEach(openThree(t, redistest.Start(t)), 20, func(l *wllock.Locker, i int) {
		from, to := "a", "b"
		if i%2 == 0 {
			from, to = to, from
		}
		bank := &recipes.Bank{Locker: l, Fences: guard}
		assert.NoError(t, patient(func() error { return bank.Transfer(t.Context(), from, to, 7) }))
	})
	require.EqualValues(t, 1000, query[int64](t, pool, `SELECT balance FROM accounts WHERE id = 'a'`))
	require.EqualValues(t, 1000, query[int64](t, pool, `SELECT balance FROM accounts WHERE id = 'b'`))
}

func TestTransferRefused(t *testing.T) {
	t.Parallel()
	pool := database(t, `INSERT INTO accounts (id, balance) VALUES ('a', 10), ('b', 0)`)
	bank := &recipes.Bank{Locker: wllocktest.New(t), Fences: fences(t, pool)}
	require.ErrorIs(t, bank.Transfer(t.Context(), "a", "b", 11), recipes.ErrNoMoney)
	require.ErrorIs(t, bank.Transfer(t.Context(), "a", "a", 1), recipes.ErrBadTransfer)
	require.ErrorIs(t, bank.Transfer(t.Context(), "a", "b", -1), recipes.ErrBadTransfer)
	require.ErrorIs(t, bank.Transfer(t.Context(), "a", "nobody", 1), recipes.ErrNoAccount)
	require.EqualValues(t, 10, query[int64](t, pool, `SELECT balance FROM accounts WHERE id = 'a'`))
}

// What DoAll is for: two nested locks in opposite orders wait for each other until a time-out ends them.
func TestNestedLocksInOppositeOrdersDeadlock(t *testing.T) {
	t.Parallel()
	l := wllocktest.New(t)
	var both errgroup.Group
	inside := make(chan struct{}, 2)
	nested := func(outer, inner string) error {
		return l.Do(t.Context(), "account", outer, func(ctx context.Context) error {
			inside <- struct{}{}
			for len(inside) < 2 {
				time.Sleep(time.Millisecond)
			}
			return l.Do(ctx, "account", inner, func(context.Context) error { return nil })
		}, wllock.WithLockTimeMax(100*time.Millisecond))
	}
	both.Go(func() error { return nested("a", "b") })
	both.Go(func() error { return nested("b", "a") })
	require.ErrorIs(t, both.Wait(), wllock.ErrLockTimeMax)
}
