package batching_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/example/batching"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testscope"
)

// roundTrips counts what is sent: a statement, or many together.
type roundTrips struct{ n atomic.Int64 }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.n.Add(1)
	return ctx
}
func (r *roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.n.Add(1)
	return ctx
}
func (r *roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (r *roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// onPostgres returns a shop with so many pieces, and what counts its round trips.
func onPostgres(t *testing.T, qty int) (*batching.Pipelined, *roundTrips) {
	config, err := pgxpool.ParseConfig(dbtest.SharedPostgres(t).URL())
	require.NoError(t, err)
	sent := new(roundTrips)
	config.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), batching.Schema)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `INSERT INTO stock (product, qty) VALUES ('1000', $1)`, qty)
	require.NoError(t, err)
	return &batching.Pipelined{Pool: pool}, sent
}

func (b books) of(t *testing.T, s *batching.Pipelined) books {
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT (SELECT qty FROM stock), count(*), count(DISTINCT number) FROM orders`).
		Scan(&b.left, &b.orders, &b.numbers))
	return b
}

type books struct{ left, orders, numbers int }

func TestPipelinedOrders(t *testing.T) {
	testscope.Long(t, "takes 2 s")
	s, _ := onPostgres(t, 100)
	served, soldOut, failed := sale(t, s.Batch, 0)
	require.Equal(t, []int{100, 200, 0}, []int{served, soldOut, failed})
	require.Equal(t, books{0, 100, 100}, books{}.of(t, s))
}

func TestABadPipelinedOrderFailsItsBatch(t *testing.T) {
	s, _ := onPostgres(t, 1000)
	served, soldOut, failed := sale(t, s.Batch, 10)
	require.Zero(t, soldOut)
	require.GreaterOrEqual(t, failed, 30)
	require.Equal(t, books{1000 - served, served, served}, books{}.of(t, s))
}

// However many orders there are, a batch takes four round trips.
func TestABatchIsFourRoundTrips(t *testing.T) {
	for _, orders := range []int{1, 64} {
		s, sent := onPostgres(t, 1000)
		l, err := wllock.New("shop", memlock.New(), wllock.WithOwnedBackend())
		require.NoError(t, err)
		items := make([]*batching.Item, orders)
		for i := range items {
			items[i] = &batching.Item{Arg: batching.Order{Product: "1000", Buyer: fmt.Sprint(i), Amount: 1}}
		}
		before := sent.n.Load()
		require.NoError(t, l.Do(t.Context(), "product", "1000", func(ctx context.Context) error { return s.Batch(ctx, items) }))
		require.EqualValues(t, 4, sent.n.Load()-before)
		require.Equal(t, books{1000 - orders, orders, orders}, books{}.of(t, s))
		require.NoError(t, l.Close(context.WithoutCancel(t.Context())))
	}
}
