package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newShop(t *testing.T, qty int) (*shop, string) {
	t.Helper()
	s, file, remove, err := createShop(t.Context())
	require.NoError(t, err)
	t.Cleanup(remove)
	require.NoError(t, s.Stock(t.Context(), "p", qty))
	return s, file
}

func (s *shop) mustAudit(t *testing.T) audit {
	t.Helper()
	a, err := s.Audit(t.Context(), "p")
	require.NoError(t, err)
	return a
}

func TestOrder(t *testing.T) {
	s, _ := newShop(t, 2)
	require.NoError(t, s.Order(t.Context(), "p", "a"))
	require.NoError(t, s.Order(t.Context(), "p", "b"))
	assert.ErrorIs(t, s.Order(t.Context(), "p", "c"), errSoldOut)
	a := s.mustAudit(t)
	assert.Equal(t, 2, a.Sold)
	assert.Equal(t, 0, a.Left)
}

func TestOrdersTogetherSellAPieceTwice(t *testing.T) {
	for range 50 { // on a busy machine they may run one after the other, but not every time
		s, _ := newShop(t, 1)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { _ = s.Order(t.Context(), "p", "a") })
		}
		all.Wait()
		if s.mustAudit(t).Sold > 1 {
			return
		}
	}
	t.Fatal("no piece was sold twice")
}

func TestOrderFenced(t *testing.T) {
	s, _ := newShop(t, 2)
	require.NoError(t, s.OrderFenced(t.Context(), "p", "a", 7))
	assert.ErrorIs(t, s.OrderFenced(t.Context(), "p", "b", 7), errStaleFence, "a fence is for one caller")
	assert.ErrorIs(t, s.OrderFenced(t.Context(), "p", "b", 6), errStaleFence)
	require.NoError(t, s.OrderFenced(t.Context(), "p", "b", 9))
	assert.ErrorIs(t, s.OrderFenced(t.Context(), "p", "c", 10), errSoldOut)
	assert.Equal(t, audit{Sold: 2}, s.mustAudit(t))
}

func TestBatchFenced(t *testing.T) {
	s, _ := newShop(t, 5)
	sold, err := s.BatchFenced(t.Context(), "p", []string{"a", "b", "c"}, 7)
	require.NoError(t, err)
	assert.Equal(t, 3, sold)
	_, err = s.BatchFenced(t.Context(), "p", []string{"d"}, 7)
	require.ErrorIs(t, err, errStaleFence, "a fence is for one batch")
	sold, err = s.BatchFenced(t.Context(), "p", []string{"d", "e", "f"}, 8)
	require.NoError(t, err)
	assert.Equal(t, 2, sold, "the first two of them")
	sold, err = s.BatchFenced(t.Context(), "p", []string{"g"}, 9)
	require.ErrorIs(t, err, errSoldOut)
	assert.Zero(t, sold)
	assert.Equal(t, audit{Sold: 5, OutOfOrder: 3}, s.mustAudit(t))
}

// A holder that was paused after its first statement must not write when it wakes: another one has read the stock.
func TestAClaimOvertakenChangesNothing(t *testing.T) {
	s, _ := newShop(t, 5)
	ctx := t.Context()
	paused, err := s.claim(ctx, "p", 1)
	require.NoError(t, err)
	require.Equal(t, 5, paused)
	require.NoError(t, s.OrderFenced(ctx, "p", "next", 2))

	done, err := s.writer.ExecContext(ctx, `UPDATE stock SET qty = ? WHERE id = 'p' AND fence = ?`, paused-1, 1)
	require.NoError(t, err)
	n, err := done.RowsAffected()
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.Equal(t, audit{Sold: 1, Left: 4}, s.mustAudit(t))
}

func TestAuditSeesFencesOutOfOrder(t *testing.T) {
	s, _ := newShop(t, 5)
	for _, fence := range []int{3, 5, 5, 4, 6, 0} {
		_, err := s.writer.ExecContext(t.Context(), `INSERT INTO orders (product, buyer, fence) VALUES ('p', 'a', ?)`, fence)
		require.NoError(t, err)
	}
	assert.Equal(t, 3, s.mustAudit(t).OutOfOrder, "5 again, 4 after 5, and none at all")
	assert.Equal(t, 2, s.mustAudit(t).Fallen, "5 again is a batch's")
}

func TestAnInterruptedOrderWritesNothing(t *testing.T) {
	s, _ := newShop(t, 5)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Order(ctx, "p", "a"), context.Canceled)
	require.ErrorIs(t, s.OrderFenced(ctx, "p", "a", 1), context.Canceled)
	assert.Equal(t, audit{Left: 5}, s.mustAudit(t))
}

func TestRemoveLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, file, remove, err := createShop(t.Context())
	require.NoError(t, err)
	require.FileExists(t, file)
	remove()
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
