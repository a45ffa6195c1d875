package fenced_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/fenced"
	"github.com/wllock/wllock/wllocktest"
)

// shop is the application of docs/testing.md whose database is tried.
type shop struct {
	db     *sql.DB
	fences *fenced.Guard
}

// sell takes one piece. Its caller has the lock.
func (s *shop) sell(ctx context.Context, _ string) error {
	return s.fences.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE stock SET qty = qty - 1")
		return err
	})
}

// audit says what is wrong with the data.
func (s *shop) audit(ctx context.Context) error {
	var left int
	err := s.db.QueryRowContext(ctx, "SELECT qty FROM stock").Scan(&left)
	if err == nil && left < 0 {
		err = fmt.Errorf("%d left", left)
	}
	return err
}

func TestTheShopOfTheGuide(t *testing.T) {
	t.Parallel()
	kind := kinds["sqlite"](t, near)
	kind.guard(t)
	db, err := wllocktest.OpenDB(kind.Driver(), kind.dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	fences, err := fenced.New(db, fenced.SQLite)
	require.NoError(t, err)
	shop := &shop{db, fences}

	wllocktest.Overlap(t, db, func(ctx context.Context) error {
		return shop.sell(ctx, "1000") // what runs under the lock. ctx carries it
	}, shop.audit, wllocktest.OverlapLocks(wllock.Resource{Name: "product", Key: "1000"}))
}
