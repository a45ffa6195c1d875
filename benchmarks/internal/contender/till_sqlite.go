package contender

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/wllock/wllock/benchmarks/internal/server"
)

// sqliteTill is a till over a file. A COMMIT is on the disk when it returns.
type sqliteTill struct{ db *sql.DB }

func openSQLiteShop(o Options, pool int) (till, error) {
	o.Workers = pool
	db, err := opened("sqlite", server.DurableSQLiteDSN(o.Addr), o)
	if err != nil {
		return nil, err
	}
	return &sqliteTill{db.DB}, nil
}

func (t *sqliteTill) Close() error      { return t.db.Close() }
func (t *sqliteTill) begin() query      { return query{text: "BEGIN IMMEDIATE"} }
func (t *sqliteTill) forUpdate() string { return "" }

func (t *sqliteTill) addOrders(buyers []int64, fence uint64) query {
	args := make([]any, 0, 3*len(buyers))
	for _, buyer := range buyers {
		args = append(args, server.Product, buyer, int64(fence))
	}
	return write(`INSERT INTO bench_orders (product, buyer, fence) VALUES `+strings.Repeat(", (?, ?, ?)", len(buyers))[2:], args...)
}

func (t *sqliteTill) on(patience context.Context, do func(exchange) error) error {
	conn, err := t.db.Conn(patience)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // back into the pool
	ctx := context.WithoutCancel(patience)
	err = do(func(all ...query) error {
		for _, q := range all {
			if err := execute(ctx, conn, q); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		_, back := conn.ExecContext(ctx, "ROLLBACK") // fails if there is no transaction
		return errors.Join(err, back)
	}
	return nil
}

func execute(ctx context.Context, conn *sql.Conn, q query) error {
	if q.read != nil {
		return notFound(conn.QueryRowContext(ctx, q.text, q.args...).Scan(q.read))
	}
	done, err := conn.ExecContext(ctx, q.text, q.args...)
	if err != nil || !q.write {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return errNoRow
}

func notFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return errNoRow
	}
	return err
}
