package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wllock/wllock"
)

// Answers of the bank.
var (
	ErrNoMoney     = errors.New("not enough money")
	ErrBadTransfer = errors.New("a transfer needs two accounts and a positive amount")
)

// Bank moves money between accounts.
type Bank struct {
	Locker *wllock.Locker
	Pool   *pgxpool.Pool
}

// Transfer holds the locks of both accounts.
func (b *Bank) Transfer(ctx context.Context, from, to string, amount int64) error {
	if from == to || amount <= 0 {
		return ErrBadTransfer
	}
	both := []wllock.Resource{{Name: "account", Key: from}, {Name: "account", Key: to}}
	return b.Locker.DoAll(ctx, both, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, b.Pool, func(tx pgx.Tx) error {
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

// book claims one account for its own fence, and changes it.
func book(ctx context.Context, tx pgx.Tx, account string, amount int64) (balance int64, err error) {
	held, _ := wllock.HeldKey(ctx, "account", account)
	err = tx.QueryRow(ctx,
		`UPDATE accounts SET fence = $1, balance = balance + $2
		WHERE id = $3 AND fence < $1 RETURNING balance`,
		int64(held.Fence()), amount, account).Scan(&balance)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrOvertaken // or there is no such account: see claim
	}
	return balance, err
}
