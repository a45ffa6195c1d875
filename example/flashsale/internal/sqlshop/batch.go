package sqlshop

import (
	"context"
	"strings"
)

// BatchFenced sells to many buyers under one lock and one fence: one claim, one thought and one transaction serve all of them. It returns
// how many have bought, first come, first served; nothing was left for the others. After an error none has.
//
// Its first statement claims the stock for the fence, and its transaction writes only if the claim still stands, so a holder that was
// paused past the end of its lease changes nothing. A check in the transaction alone is not enough, because two orders may have read the
// same stock by then. The transaction ends with the lock's context.
func (s *Shop) BatchFenced(ctx context.Context, product string, buyers []string, fence uint64) (sold int, err error) {
	row, err := s.claim(ctx, product, int64(fence))
	if err != nil {
		return 0, err
	}
	if err := s.think(ctx); err != nil {
		return 0, err
	}
	sold = int(min(row.qty, int64(len(buyers))))
	err = s.retry(ctx, func() error {
		return s.inTx(ctx, s.db.BeginTx, func(tx *transaction) error {
			err := tx.change(`UPDATE flashsale_stock SET qty = ? WHERE id = ? AND fence = ?`, row.qty-int64(sold), product, int64(fence))
			if err != nil {
				return orElse(err, ErrStaleFence)
			}
			return tx.addOrders(product, buyers[:sold], int64(fence))
		})
	})
	if err != nil {
		return 0, err
	}
	return sold, nil
}

// addOrders writes all orders in one statement.
func (tx *transaction) addOrders(product string, buyers []string, fence int64) error {
	args := make([]any, 0, 3*len(buyers))
	for _, buyer := range buyers {
		args = append(args, product, buyer, fence)
	}
	rows := strings.Repeat(", (?, ?, ?)", len(buyers))[len(", "):]
	return tx.change(`INSERT INTO flashsale_orders (product, buyer, fence) VALUES `+rows, args...)
}
