package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

var (
	// errSoldOut is an answer, not a failure: nothing was left.
	errSoldOut = sqlshop.ErrSoldOut
	// errStaleFence stops an order whose lock was lost: a caller with a higher fence has been admitted since.
	errStaleFence = sqlshop.ErrStaleFence
)

// thinking is what an order does between reading the stock and writing it: a price, a voucher, a fraud check.
const thinking = time.Millisecond

const schema = `
CREATE TABLE stock (
	id    TEXT PRIMARY KEY,
	qty   INTEGER NOT NULL,
	fence INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE orders (
	id      INTEGER PRIMARY KEY,
	product TEXT NOT NULL REFERENCES stock (id),
	buyer   TEXT NOT NULL,
	fence   INTEGER NOT NULL DEFAULT 0
);`

// busyTimeout is how long a writer waits for another process that writes, in ms. It is longer than a whole run: a busy
// database must cost time and never an order, otherwise the rounds would compare SQLite and not the locks.
const busyTimeout = 60_000

// shop is the database. It is written over one connection, because SQLite has one writer at a time anyway: the writers of a
// process queue fairly in the pool, and busyTimeout is for those of other processes. Readers never wait (WAL).
type shop struct {
	reader, writer *sql.DB
	thinking       time.Duration
}

// createShop makes an empty shop in a directory of its own. remove closes it and leaves nothing behind.
func createShop(ctx context.Context) (s *shop, file string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "flashsale-")
	if err != nil {
		return nil, "", nil, err
	}
	file = filepath.Join(dir, "shop.db")
	s, err = openShop(file)
	if err == nil {
		_, err = s.writer.ExecContext(ctx, schema)
	}
	remove = func() {
		if s != nil {
			s.Close()
		}
		_ = os.RemoveAll(dir) // a leftover temporary directory is not worth an exit status
	}
	if err != nil {
		remove()
		return nil, "", nil, fmt.Errorf("create the shop's database: %w", err)
	}
	return s, file, remove, nil
}

// openShop opens the shop in file. Several processes may have it open.
func openShop(file string) (*shop, error) {
	settings := url.Values{
		"_busy_timeout": {fmt.Sprint(busyTimeout)},
		"_journal_mode": {"WAL"},
		"_synchronous":  {"NORMAL"},
		"_txlock":       {"immediate"}, // a transaction that would have to upgrade from reader to writer fails at once
	}
	name := file + "?" + settings.Encode()
	writer, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, err
	}
	writer.SetMaxOpenConns(1)
	reader, err := sql.Open("sqlite", name)
	if err != nil {
		_ = writer.Close()
		return nil, err
	}
	reader.SetMaxOpenConns(maxReaders)
	reader.SetMaxIdleConns(maxReaders)
	return &shop{reader: reader, writer: writer, thinking: thinking}, nil
}

// maxReaders is more than a machine can use at once, and within the limit of open files.
const maxReaders = 16

func (s *shop) Close() {
	_ = s.reader.Close()
	_ = s.writer.Close()
}

// Stock adds a product with its stock.
func (s *shop) Stock(ctx context.Context, product string, qty int) error {
	_, err := s.writer.ExecContext(ctx, `INSERT INTO stock (id, qty) VALUES (?, ?)`, product, qty)
	return err
}

// Order is how most shops sell: read the stock, think, write the stock less one. Every statement is correct, and so is the
// transaction, but two orders that read the same stock sell the same piece twice.
func (s *shop) Order(ctx context.Context, product, buyer string) error {
	var qty int
	if err := s.reader.QueryRowContext(ctx, `SELECT qty FROM stock WHERE id = ?`, product).Scan(&qty); err != nil {
		return err
	}
	if qty == 0 {
		return errSoldOut
	}
	if err := sleep(ctx, s.thinking); err != nil {
		return err
	}
	return s.inTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE stock SET qty = ? WHERE id = ?`, qty-1, product); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO orders (product, buyer) VALUES (?, ?)`, product, buyer)
		return err
	})
}

// OrderFenced is Order for a caller that holds a lock with a fence. Its first statement claims the stock for the fence
// and its last writes only if the claim still stands, so a holder that was paused past the end of its lease changes nothing.
// A check in the last statement alone is not enough, because two orders may have read the same stock by then.
func (s *shop) OrderFenced(ctx context.Context, product, buyer string, fence uint64) error {
	qty, err := s.claim(ctx, product, fence)
	if err != nil {
		return err
	}
	if qty == 0 {
		return errSoldOut
	}
	if err := sleep(ctx, s.thinking); err != nil {
		return err
	}
	return s.inTx(ctx, func(tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, `UPDATE stock SET qty = ? WHERE id = ? AND fence = ?`, qty-1, product, int64(fence))
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return errors.Join(errStaleFence, err)
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO orders (product, buyer, fence) VALUES (?, ?, ?)`, product, buyer, int64(fence))
		return err
	})
}

// BatchFenced is OrderFenced for many buyers: one claim, one thought and one transaction serve all of them. It returns how many have
// bought, first come, first served; nothing was left for the others. After an error none has.
func (s *shop) BatchFenced(ctx context.Context, product string, buyers []string, fence uint64) (sold int, err error) {
	qty, err := s.claim(ctx, product, fence)
	if err != nil {
		return 0, err
	}
	if sold = min(qty, len(buyers)); sold == 0 {
		return 0, errSoldOut
	}
	if err := sleep(ctx, s.thinking); err != nil {
		return 0, err
	}
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, `UPDATE stock SET qty = ? WHERE id = ? AND fence = ?`, qty-sold, product, int64(fence))
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return errors.Join(errStaleFence, err)
		}
		var args []any
		for _, buyer := range buyers[:sold] {
			args = append(args, product, buyer, int64(fence))
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO orders (product, buyer, fence) VALUES (?, ?, ?)`+strings.Repeat(", (?, ?, ?)", sold-1), args...)
		return err
	})
	if err != nil {
		return 0, err
	}
	return sold, nil
}

// claim reads the stock and, in the same statement, excludes every holder of a lower fence. No row would also mean that there is no
// such product, which its callers exclude.
func (s *shop) claim(ctx context.Context, product string, fence uint64) (qty int, err error) {
	err = s.writer.QueryRowContext(ctx,
		`UPDATE stock SET fence = ?1 WHERE id = ?2 AND fence < ?1 RETURNING qty`, int64(fence), product).Scan(&qty)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, errStaleFence
	}
	return qty, err
}

func (s *shop) inTx(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func think(ctx context.Context) error { return sleep(ctx, thinking) }

// sleep returns early, with the reason, when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// audit is the state of the database after a round. The verdict rests on it alone: counters can be wrong in the same way as
// the code they count.
type audit struct {
	Sold       int // rows in orders
	Left       int // pieces in stock
	OutOfOrder int // orders whose fence is not above that of the order before
	Fallen     int // those whose fence is below it: orders of a batch have the same
}

// Audit counts the orders and the remaining stock of a product.
func (s *shop) Audit(ctx context.Context, product string) (a audit, err error) {
	err = s.reader.QueryRowContext(ctx, `
		SELECT COUNT(*), COALESCE(SUM(fence <= previous), 0), COALESCE(SUM(fence < previous), 0), (SELECT qty FROM stock WHERE id = ?1)
		FROM (SELECT fence, LAG(fence, 1, 0) OVER (ORDER BY id) AS previous FROM orders WHERE product = ?1)`,
		product).Scan(&a.Sold, &a.OutOfOrder, &a.Fallen, &a.Left)
	return a, err
}
