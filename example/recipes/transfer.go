package recipes

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/fenced"
)

// Answers of the bank.
var (
	ErrNoMoney     = errors.New("not enough money")
	ErrNoAccount   = errors.New("no such account")
	ErrBadTransfer = errors.New("a transfer needs two accounts and a positive amount")
)

// Bank moves money between accounts.
type Bank struct {
	Locker *wllock.Locker
	Fences *fenced.Guard
}

// Transfer holds the locks of both accounts.
func (b *Bank) Transfer(ctx context.Context, from, to string, amount int64) error {
	if from == to || amount <= 0 {
		return ErrBadTransfer
	}
	both := []wllock.Resource{{Name: "account", Key: from}, {Name: "account", Key: to}}
	return b.Locker.DoAll(ctx, both, func(ctx context.Context) error {
		return b.Fences.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { // claims both
			balance, err := book(ctx, tx, from, -amount)
			if err == nil && balance < 0 {
				err = ErrNoMoney
			}
			if err != nil {
				return err // rolled back
			}
			_, err = book(ctx, tx, to, amount)
			return err
		})
	}, wllock.WithWait(2*time.Second))
}

// book changes one account.
func book(ctx context.Context, tx *sql.Tx, account string, amount int64) (balance int64, err error) {
	err = tx.QueryRowContext(ctx, `UPDATE accounts SET balance = balance + $1 WHERE id = $2 RETURNING balance`,
		amount, account).Scan(&balance)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoAccount
	}
	return balance, err
}
