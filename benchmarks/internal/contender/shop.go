package contender

import (
	"context"
	"errors"
	"fmt"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/benchmarks/internal/server"
)

// Seller is an Instance that sells one product from a database, under its locks or under ours.
type Seller interface {
	// Sell returns nil when the order is in the database. The end of ctx ends the wait, never an order that has begun: the
	// audit compares what the database has with what buyers were told.
	Sell(ctx context.Context, buyer int64) error
}

// Batched returns the name of a contender that serves up to n callers in one run.
func Batched(n int) string { return fmt.Sprintf("batch-%d", n) }

// Guard is the name of the contender with one order in each hold.
const Guard = "guard"

var batchSizes = []int{64, 16, 256}

// shops are ways to sell one product, and in Redis the same with work instead of a database.
func shops() []Contender {
	all := sellers(place{OverBatch, server.Postgres, true}, "PostgreSQL", pgxModule, openPgShop)
	all = append(all, sellers(place{OverBatch, server.SQLite, true}, "SQLite", sqliteModule, openSQLiteShop)...)
	return append(all, workers()...)
}

// pools are the sizes that are tried, in connections of each instance. One order after the other passes through the row, so more
// than some wait in the database instead of in front of it.
var pools = []int{1, 2, 4, 16}

// ourPool is for one transaction at a time, and the next one's connection while the first one's goes back.
const ourPool = 2

// Pipelined ends the name of a contender whose transaction takes two round trips. Without it each statement takes one, as in code that
// knows nothing of pipelines.
const Pipelined = "-piped"

type openTill = func(o Options, pool int) (till, error)

// sellers are ours, and what sells without our lock: that in the fastest way.
func sellers(at place, name, module string, open openTill) []Contender {
	plain := open
	if module == pgxModule {
		plain = openPlainPgShop
	}
	var all []Contender
	for _, n := range batchSizes {
		all = append(all, ourSeller(at, Batched(n), fmt.Sprintf("%s: WrapBatch, up to %d orders in one transaction", name, n), plain, inBatches(n)))
	}
	all = append(all, ourSeller(at, Guard, name+": Wrap, one order in one transaction", plain, oneByOne))
	if module == pgxModule {
		all = append(all, ourSeller(at, Batched(64)+Pipelined, "PostgreSQL: the same, pipelined", open, inBatches(64)),
			ourSeller(at, Guard+Pipelined, "PostgreSQL: the same, pipelined", open, oneByOne))
	}
	for _, w := range ways {
		if w.postgresOnly && module != pgxModule {
			continue
		}
		settings := fmt.Sprintf("%s: %s", name, w.on(module))
		all = append(all, tuned(w.name, settings, theirPools(at, w, settings, module, open)...)...)
	}
	return all
}

func ourSeller(at place, name, settings string, open openTill, sell func(till, *wllock.Locker) sale) Contender {
	pool := fmt.Sprintf("pool %d", ourPool)
	settings += ": BEGIN, claim for the fence; INSERT, UPDATE, COMMIT. The lock over Redis, all defaults; " + pool
	c := at.has(Subject, ourModule, statements, []entry{{name, settings, func(o Options) (Instance, error) { return openOurShop(o, open, sell) }}})[0]
	c.Locks, c.Setting = true, pool
	return c
}

// theirPools are a way to sell with each size of the pool.
func theirPools(at place, w way, settings, module string, open openTill) (all []Contender) {
	for _, size := range pools {
		pool := fmt.Sprintf("pool %d", size)
		c := at.has(Rival, module, statements, []entry{{fmt.Sprintf("%s-%d", w.name, size), settings + "; " + pool, func(o Options) (Instance, error) {
			t, err := open(o, size)
			if err != nil {
				return nil, err
			}
			return &shop{till: t, sell: func(ctx context.Context, buyer int64) error { return w.sell(ctx, t, buyer) }}, nil
		}}})[0]
		c.Setting = pool
		all = append(all, c)
	}
	return all
}

// sale sells one piece.
type sale = func(ctx context.Context, buyer int64) error

// shop is an Instance.
type shop struct {
	till
	sell   sale
	locker *wllock.Locker // nil: the database's locks
}

// Sell implements Seller.
func (s *shop) Sell(ctx context.Context, buyer int64) error { return s.sell(ctx, buyer) }

// Do implements Instance.
func (s *shop) Do(context.Context, string, func(context.Context) error) error {
	return errors.New("a shop sells")
}

func (s *shop) Close() error {
	var err error
	if s.locker != nil {
		err = s.locker.Close(context.Background())
	}
	return errors.Join(err, s.till.Close())
}

func openOurShop(o Options, open openTill, sell func(till, *wllock.Locker) sale) (Instance, error) {
	t, err := open(o, ourPool)
	if err != nil {
		return nil, err
	}
	l, err := openOurs(Options{Addr: o.Locks, Locker: o.Locker}, overRedis)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return &shop{till: t, sell: sell(t, l.locker), locker: l.locker}, nil
}

// oneByOne sells one piece in each hold.
func oneByOne(t till, l *wllock.Locker) sale {
	sell := wllock.Wrap(l, "product", func(int64) string { return server.Product }, func(ctx context.Context, buyer int64) (struct{}, error) {
		held, _ := wllock.HeldFrom(ctx)
		return struct{}{}, sellFenced(context.WithoutCancel(ctx), t, held.Fence(), []int64{buyer})
	})
	return func(ctx context.Context, buyer int64) error {
		_, err := sell(ctx, buyer)
		return err
	}
}

// inBatches sells to up to n buyers in each hold. They wait until their batch has ended, so that the audit may be exact.
func inBatches(n int) func(till, *wllock.Locker) sale {
	return func(t till, l *wllock.Locker) sale {
		sell := wllock.WrapBatch(l, "product", func(int64) string { return server.Product },
			func(ctx context.Context, batch []*wllock.Item[int64, struct{}]) error {
				buyers := make([]int64, len(batch))
				for i, item := range batch {
					buyers[i] = item.Arg
				}
				held, _ := wllock.HeldFrom(ctx)
				return sellFenced(ctx, t, held.Fence(), buyers)
			}, wllock.WithMaxBatch(n))
		return func(ctx context.Context, buyer int64) error {
			_, err := sell(context.WithoutCancel(ctx), buyer)
			return err
		}
	}
}

// workers do the same work in each hold, for one caller or for a batch.
func workers() []Contender {
	at := place{OverBatch, server.Redis, false}
	var rows []entry
	for _, n := range batchSizes {
		rows = append(rows, entry{Batched(n), fmt.Sprintf("work: WrapBatch, up to %d callers in each hold, which work once", n), func(o Options) (Instance, error) {
			l, err := openOurs(o, overRedis)
			if err != nil {
				return nil, err
			}
			return newBatchLock(l.locker, n), nil
		}})
	}
	ideal := Ideal()
	ideal.Group = OverBatch
	return append(at.has(Subject, ourModule, ourCommands, append(rows, entry{Guard, "work: Do, one caller in each hold", opener(overRedis)})), ideal)
}

// batchLock runs the function of the first caller of a batch for all of them.
type batchLock struct {
	ourLock
	run func(ctx context.Context, f func(context.Context) error) (struct{}, error)
}

func newBatchLock(l *wllock.Locker, n int) batchLock {
	type work = func(context.Context) error
	return batchLock{ourLock{l}, wllock.WrapBatch(l, "key", func(work) string { return server.Product },
		func(ctx context.Context, batch []*wllock.Item[work, struct{}]) error { return batch[0].Arg(ctx) }, wllock.WithMaxBatch(n))}
}

// Do implements Instance. It waits for the function's end, which writes to what the caller will read.
func (b batchLock) Do(ctx context.Context, _ string, f func(context.Context) error) error {
	_, err := b.run(context.WithoutCancel(ctx), f)
	return err
}
