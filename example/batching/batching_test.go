package batching_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/example/batching"
	"github.com/wllock/wllock/internal/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dbtest.Main(m)) }

// open returns a shop with so many pieces in a database of its own.
func open(t testing.TB, qty int) *batching.Shop {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxOpenConns(4)
	_, err = db.ExecContext(t.Context(), batching.Schema)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `INSERT INTO stock (product, qty) VALUES ('1000', $1)`, qty)
	require.NoError(t, err)
	return &batching.Shop{DB: db}
}

// left is what the database says: the stock, the pieces in orders, and the orders.
func left(t testing.TB, s *batching.Shop) (qty, sold, orders int) {
	require.NoError(t, s.DB.QueryRowContext(t.Context(), `SELECT qty FROM stock`).Scan(&qty))
	require.NoError(t, s.DB.QueryRowContext(t.Context(), `SELECT coalesce(sum(amount), 0), count(*) FROM orders`).Scan(&sold, &orders))
	return qty, sold, orders
}

type work = func(context.Context, []*batching.Item) error

// guards returns a batch guard around work in each of two processes.
func guards(t testing.TB, do work, opts ...wllock.CallOption) (all []func(context.Context, batching.Order) (int, error)) {
	backend := memlock.New()
	for range 2 {
		l, err := wllock.New("shop", backend)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
		all = append(all, wllock.WrapBatch(l, "product", func(o batching.Order) string { return o.Product }, do, opts...))
	}
	return all
}

// sale has 300 buyers, of which every bad-th asks for nothing, and returns how many were served, refused, and failed.
func sale(t *testing.T, do work, bad int) (served, soldOut, failed int) {
	var got [3]atomic.Int64
	var all sync.WaitGroup
	instances := guards(t, do)
	for i := range 300 {
		all.Go(func() {
			amount := 1
			if bad > 0 && i%bad == 0 {
				amount = 0
			}
			number, err := instances[i%2](t.Context(), batching.Order{Product: "1000", Buyer: fmt.Sprint(i), Amount: amount})
			switch {
			case err == nil && number > 0:
				got[0].Add(1)
			case errors.Is(err, batching.ErrSoldOut):
				got[1].Add(1)
			default:
				got[2].Add(1)
			}
		})
	}
	all.Wait()
	return int(got[0].Load()), int(got[1].Load()), int(got[2].Load())
}

func TestEachBuyerHasItsOwnAnswer(t *testing.T) {
	for name, of := range ways {
		t.Run(name, func(t *testing.T) {
			s := open(t, 100)
			served, soldOut, failed := sale(t, of(s), 0)
			require.Equal(t, []int{100, 200, 0}, []int{served, soldOut, failed})
			qty, sold, orders := left(t, s)
			require.Equal(t, []int{0, 100, 100}, []int{qty, sold, orders})
		})
	}
}

// One bad order in ten: with Batch it fails others, with the other two it fails alone.
func TestBadOrdersFailAlone(t *testing.T) {
	for name, of := range ways {
		t.Run(name, func(t *testing.T) {
			s := open(t, 1000)
			served, soldOut, failed := sale(t, of(s), 10)
			require.Zero(t, soldOut)
			if name == "batch" {
				require.GreaterOrEqual(t, failed, 30)
			} else {
				require.Equal(t, []int{270, 30}, []int{served, failed})
			}
			qty, sold, orders := left(t, s)
			require.Equal(t, []int{1000 - served, served, served}, []int{qty, sold, orders})
		})
	}
}

// The two reasons for a claim without a row.
func TestClaimWithoutARow(t *testing.T) {
	for name, of := range ways {
		t.Run(name, func(t *testing.T) {
			s := open(t, 10)
			buy := guards(t, of(s))[0]
			_, err := buy(t.Context(), batching.Order{Product: "2000", Amount: 1})
			require.ErrorIs(t, err, batching.ErrNoProduct)
			_, err = s.DB.ExecContext(t.Context(), `UPDATE stock SET fence = 9223372036854775807`)
			require.NoError(t, err)
			_, err = buy(t.Context(), batching.Order{Product: "1000", Amount: 1})
			require.ErrorIs(t, err, batching.ErrOvertaken)
		})
	}
}

var ways = map[string]func(*batching.Shop) work{
	"batch":      func(s *batching.Shop) work { return s.Batch },
	"halves":     func(s *batching.Shop) work { return s.Halves },
	"savepoints": func(s *batching.Shop) work { return s.Savepoints },
}

// BenchmarkPoison has 64 buyers in each of two processes; an operation is one order. bad of 1000 orders are bad.
func BenchmarkPoison(b *testing.B) {
	one := func(s *batching.Shop) work { return s.Batch }
	for _, way := range []struct {
		name string
		of   func(*batching.Shop) work
		max  int
	}{{"one by one", one, 1}, {"batch", ways["batch"], 64}, {"halves", ways["halves"], 64}, {"savepoints", ways["savepoints"], 64}} {
		for _, bad := range []int{0, 1, 10, 50} {
			b.Run(fmt.Sprintf("%s/bad=%d", way.name, bad), func(b *testing.B) {
				poisoned(b, way.of(open(b, 1<<40)), bad, wllock.WithMaxBatch(way.max))
			})
		}
	}
}

func poisoned(b *testing.B, do work, bad int, opts ...wllock.CallOption) {
	calls := make(chan int)
	var all sync.WaitGroup
	var innocent atomic.Int64
	for _, buy := range guards(b, do, opts...) {
		for range 64 {
			all.Go(func() {
				for i := range calls {
					o := batching.Order{Product: "1000", Buyer: fmt.Sprint(i)}
					if i%1000 >= bad {
						o.Amount = 1
					}
					if _, err := buy(context.Background(), o); err != nil && o.Amount > 0 {
						innocent.Add(1)
					}
				}
			})
		}
	}
	begin := time.Now()
	for i := 0; b.Loop(); i++ {
		calls <- i * 7919 % 100_000 // bad ones are spread
	}
	close(calls)
	all.Wait()
	b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "orders/s")
	b.ReportMetric(100*float64(innocent.Load())/float64(b.N), "%innocent-failed")
}

// BenchmarkLone has one caller alternate between a guard and a batch guard around the same transaction, so that both have the same
// machine, and compares the medians.
func BenchmarkLone(b *testing.B) {
	s := open(b, 1<<40)
	l, err := wllock.New("shop", memlock.New())
	require.NoError(b, err)
	defer func() { require.NoError(b, l.Close(context.WithoutCancel(b.Context()))) }()
	product := func(o batching.Order) string { return o.Product }
	batched := wllock.WrapBatch(l, "product", product, s.Batch)
	alone := wllock.Wrap(l, "product", product,
		func(ctx context.Context, o batching.Order) (int, error) {
			one := &batching.Item{Arg: o}
			err := s.Batch(ctx, []*batching.Item{one})
			return one.Result, err
		})
	var took [2][]time.Duration
	for i := 0; b.Loop(); i++ {
		begin := time.Now()
		_, err := []func(context.Context, batching.Order) (int, error){alone, batched}[i%2](b.Context(), batching.Order{Product: "1000", Amount: 1})
		took[i%2] = append(took[i%2], time.Since(begin))
		require.NoError(b, err)
	}
	for i, what := range []string{"p50-guard-µs", "p50-batch-µs"} {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Microseconds()), what)
	}
}
