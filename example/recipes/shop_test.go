package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/fenced"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/wllocktest"
)

// counter is a shop of either kind.
type counter interface {
	sell(ctx context.Context, product, order string) (left int64, err error)
}

type pgxCounter struct{ *recipes.Shop }

func (c pgxCounter) sell(ctx context.Context, product, order string) (int64, error) {
	return c.Sell(ctx, recipes.Order{Customer: "alice", ID: order, Product: product})
}

type gormCounter struct{ *recipes.GormShop }

func (c gormCounter) sell(ctx context.Context, product, _ string) (int64, error) {
	return c.Sell(ctx, product)
}

// stocked is a database with 10 pieces, and what opens shops on it.
type stocked struct {
	open  func(l *wllock.Locker) counter
	exec  func(sql string)
	value func(sql string) int64
}

func shops(t *testing.T) map[string]func(t *testing.T) stocked {
	const fill = `INSERT INTO stock (id, qty) VALUES ('1000', 10)`
	return map[string]func(t *testing.T) stocked{
		"pgx": func(t *testing.T) stocked {
			pool := database(t, fill)
			guard := fences(t, pool)
			return stocked{
				func(l *wllock.Locker) counter { return pgxCounter{&recipes.Shop{Locker: l, Fences: guard}} },
				func(sql string) {
					_, err := pool.Exec(t.Context(), sql)
					require.NoError(t, err)
				},
				func(sql string) int64 { return query[int64](t, pool, sql) },
			}
		},
		"GORM": func(t *testing.T) stocked {
			db, guard := openGorm(t)
			require.NoError(t, db.AutoMigrate(&recipes.Stock{}))
			require.NoError(t, db.Exec(fill).Error)
			return stocked{
				func(l *wllock.Locker) counter {
					return gormCounter{&recipes.GormShop{Locker: l, DB: db, Fences: guard}}
				},
				func(sql string) { require.NoError(t, db.Exec(sql).Error) },
				func(sql string) (v int64) {
					require.NoError(t, db.Raw(sql).Scan(&v).Error)
					return v
				},
			}
		},
	}
}

func openGorm(t *testing.T) (*gorm.DB, *fenced.Guard) {
	db, err := gorm.Open(postgres.Open(dbtest.SharedPostgres(t).URL()), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	guard, err := fenced.New(pool, fenced.PostgreSQL)
	require.NoError(t, err)
	require.NoError(t, guard.Migrate(t.Context()))
	return db, guard
}

func inBothShops(t *testing.T, test func(t *testing.T, s stocked)) {
	for name, open := range shops(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func TestThreeProcessesSellWhatThereIs(t *testing.T) {
	t.Parallel()
	for name, kind := range shops(t) {
		t.Run(name, func(t *testing.T) {
			var sold, gone atomic.Int64
			s := kind(t)
			inEach(openThree(t, redistest.Start(t)), 10, func(l *wllock.Locker, i int) {
				err := patient(func() error {
					_, err := s.open(l).sell(t.Context(), "1000", fmt.Sprint(l.Instance(), i))
					return err
				})
				switch {
				case err == nil:
					sold.Add(1)
				case errors.Is(err, recipes.ErrSoldOut):
					gone.Add(1)
				default:
					t.Error(err)
				}
			})
			assert.Equal(t, []int64{10, 20, 0}, []int64{sold.Load(), gone.Load(), s.value(`SELECT qty FROM stock`)})
		})
	}
}

func TestShopHasNoSuchProduct(t *testing.T) {
	t.Parallel()
	inBothShops(t, func(t *testing.T, s stocked) {
		_, err := s.open(wllocktest.New(t)).sell(t.Context(), "2000", "a")
		require.ErrorIs(t, err, recipes.ErrNoProduct)
	})
}

// A holder that has lost its lock without knowing it, as a paused one has: the next one has sold meanwhile.
func TestOvertakenHolderSellsNothing(t *testing.T) {
	t.Parallel()
	inBothShops(t, func(t *testing.T, s stocked) {
		first, faults := wllocktest.NewWithFaults(t, wllock.WithLeaseTTL(time.Minute)) // the loss is noticed after 20 s
		second := faults.Process(wllock.WithLeaseTTL(time.Minute))
		_ = first.Do(t.Context(), "product", "1000", func(ctx context.Context) error {
			faults.Lose("product", "1000") // as a restart of the backend does
			_, err := s.open(second).sell(t.Context(), "1000", "second")
			assert.NoError(t, err)
			_, err = s.open(first).sell(ctx, "1000", "first")
			assert.ErrorIs(t, err, fenced.ErrFenced)
			return err
		})
		require.EqualValues(t, 9, s.value(`SELECT qty FROM stock`))
	})
}

func TestOrderIsSoldOnce(t *testing.T) {
	t.Parallel()
	pool := database(t, `INSERT INTO stock (id, qty) VALUES ('1000', 10), ('2000', 77)`)
	shop := &recipes.Shop{Locker: wllocktest.New(t), Fences: fences(t, pool)}
	for range 3 {
		left, err := shop.Sell(t.Context(), recipes.Order{Customer: "alice", ID: "order-1", Product: "1000"})
		require.NoError(t, err)
		require.EqualValues(t, 9, left)
	}
	// Other customers number their orders alike: theirs are others. One id is one order.
	left, err := shop.Sell(t.Context(), recipes.Order{Customer: "bob", ID: "order-1", Product: "2000"})
	require.NoError(t, err)
	require.EqualValues(t, 76, left)
	_, err = shop.Sell(t.Context(), recipes.Order{Customer: "alice", ID: "order-1", Product: "2000"})
	require.ErrorIs(t, err, recipes.ErrOther)
	for _, incomplete := range []recipes.Order{{Customer: "alice", Product: "1000"}, {ID: "order-2", Product: "1000"}} {
		_, err = shop.Sell(t.Context(), incomplete)
		require.ErrorIs(t, err, recipes.ErrNoOrder)
	}
	require.EqualValues(t, 9, query[int64](t, pool, `SELECT qty FROM stock WHERE id = '1000'`))
	require.EqualValues(t, 76, query[int64](t, pool, `SELECT qty FROM stock WHERE id = '2000'`))
}
