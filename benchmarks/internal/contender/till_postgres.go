package contender

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wllock/wllock/benchmarks/internal/server"
)

// pgTill is a till over pgx itself. Each statement is prepared once per connection.
type pgTill struct {
	*pgPool
	send func(ctx context.Context, conn *pgxpool.Conn, all []query) error
}

func openPgShop(o Options, pool int) (till, error) {
	o.Workers = pool
	p, err := openPostgres(o)
	if err != nil {
		return nil, err
	}
	return &pgTill{p, sendTogether}, nil
}

// openPlainPgShop opens one that waits for the answer to each statement.
func openPlainPgShop(o Options, pool int) (till, error) {
	t, err := openPgShop(o, pool)
	if err != nil {
		return nil, err
	}
	t.(*pgTill).send = sendEach
	return t, nil
}

func (t *pgTill) begin() query      { return query{text: "BEGIN"} }
func (t *pgTill) forUpdate() string { return " FOR UPDATE" }

func (t *pgTill) addOrders(buyers []int64, fence uint64) query {
	if len(buyers) == 1 {
		return write(`INSERT INTO bench_orders (product, buyer, fence) VALUES ($1, $2, $3)`, server.Product, buyers[0], int64(fence))
	}
	return write(`INSERT INTO bench_orders (product, buyer, fence) SELECT $1, buyer, $3 FROM unnest($2::bigint[]) AS buyer`,
		server.Product, buyers, int64(fence))
}

func (t *pgTill) on(patience context.Context, do func(exchange) error) error {
	conn, err := t.pool.Acquire(patience)
	if err != nil {
		return err
	}
	defer conn.Release() // one that is in a transaction is closed, which rolls back
	ctx := context.WithoutCancel(patience)
	return do(func(all ...query) error { return t.send(ctx, conn, all) })
}

func sendEach(ctx context.Context, conn *pgxpool.Conn, all []query) error {
	for _, q := range all {
		if q.read != nil {
			if err := notThere(conn.QueryRow(ctx, q.text, q.args...).Scan(q.read)); err != nil {
				return err
			}
			continue
		}
		done, err := conn.Exec(ctx, q.text, q.args...)
		if err := changed(q, done, err); err != nil {
			return err
		}
	}
	return nil
}

func sendTogether(ctx context.Context, conn *pgxpool.Conn, all []query) error {
	var b pgx.Batch
	for _, q := range all {
		b.Queue(q.text, q.args...)
	}
	results := conn.SendBatch(ctx, &b)
	for _, q := range all {
		if err := result(results, q); err != nil {
			return errors.Join(err, results.Close())
		}
	}
	return results.Close()
}

func result(from pgx.BatchResults, q query) error {
	if q.read != nil {
		return notThere(from.QueryRow().Scan(q.read))
	}
	done, err := from.Exec()
	return changed(q, done, err)
}

func notThere(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return errNoRow
	}
	return err
}

func changed(q query, done pgconn.CommandTag, err error) error {
	if err == nil && q.write && done.RowsAffected() == 0 {
		return errNoRow
	}
	return err
}
