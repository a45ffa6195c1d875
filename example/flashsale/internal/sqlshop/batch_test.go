package sqlshop

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBatchFenced(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := create(t, url, 70, atOnce)
		ctx, buyers := t.Context(), make([]string, 64)
		for i := range buyers {
			buyers[i] = fmt.Sprint(i)
		}
		before := s.Statements.Load()
		sold, err := s.BatchFenced(ctx, "p", buyers, 7)
		require.NoError(t, err)
		assert.Equal(t, 64, sold)
		assert.LessOrEqual(t, s.Statements.Load()-before, int64(6), "claim, BEGIN, UPDATE, INSERT, COMMIT; MySQL reads after the claim")
		_, err = s.BatchFenced(ctx, "p", buyers, 7)
		require.ErrorIs(t, err, ErrStaleFence, "a fence is a batch's own")
		sold, err = s.BatchFenced(ctx, "p", buyers, 8)
		require.NoError(t, err)
		assert.Equal(t, 6, sold, "the first of them")
		sold, err = s.BatchFenced(ctx, "p", buyers, 9)
		require.ErrorIs(t, err, ErrSoldOut)
		assert.Zero(t, sold)
		s.expect(t, Audit{Sold: 70, OutOfOrder: 68})
		var last string
		require.NoError(t, s.db.QueryRowContext(ctx, `SELECT buyer FROM flashsale_orders ORDER BY id DESC LIMIT 1`).Scan(&last))
		assert.Equal(t, "5", last, "in the order of the batch")
	})
}

// A batch that is paused after its claim must not write when it wakes up: another one has read the stock. So it is with a single order,
// which is a batch of one.
func TestABatchThatWasOvertakenChangesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		var s *Shop
		overtaken := false
		s = create(t, url, 5, func(ctx context.Context) error {
			if overtaken {
				return nil
			}
			overtaken = true
			_, err := s.BatchFenced(ctx, "p", []string{"next", "one more"}, 2)
			return err
		})
		sold, err := s.BatchFenced(t.Context(), "p", []string{"paused"}, 1)
		require.ErrorIs(t, err, ErrStaleFence)
		assert.Zero(t, sold)
		s.expect(t, Audit{Sold: 2, Left: 3, OutOfOrder: 1})
	})
}
