package contender

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/benchmarks/internal/server"
)

// Batched returns the name of a contender that serves up to n callers in one run.
func Batched(n int) string { return fmt.Sprintf("batch-%d", n) }

// Guard is the name of the contender with one order in each hold.
const Guard = "guard"

var batchSizes = []int{64, 16, 256}

// market is a database that sells.
type market struct {
	place
	name, module string
	open         func(o Options, together bool) (*till, error)
}

// shops are ways to sell one product, and in Redis the same with work instead of a database.
func shops() []Contender {
	return slices.Concat(
		market{place{OverBatch, server.Postgres, true}, "PostgreSQL", pgxModule, openPostgresTill}.sellers(),
		market{place{OverBatch, server.SQLite, true}, "SQLite", sqliteModule, openSQLiteTill}.sellers(),
		workers())
}

// pools are the sizes that are tried, in connections of each instance. One order after the other passes through the row, so more
// than some wait in the database instead of in front of it.
var pools = []int{1, 2, 4, 16}

// ourPool is for one transaction at a time, and the next one's connection while the first one's goes back.
const ourPool = 2

// Pipelined ends the name of a contender whose transaction takes two round trips. Without it each statement takes one, as in code that
// knows nothing of pipelines.
const Pipelined = "-piped"

// sellers are ours, and what sells without our lock: that in the fastest way.
func (m market) sellers() (all []Contender) {
	for _, n := range batchSizes {
		all = append(all, m.ours(Batched(n), fmt.Sprintf("%s: WrapBatch, up to %d orders in one transaction", m.name, n), false, inBatches(n)))
	}
	all = append(all, m.ours(Guard, m.name+": Wrap, one order in one transaction", false, oneByOne))
	if m.store == server.Postgres {
		all = append(all, m.ours(Batched(64)+Pipelined, "PostgreSQL: the same, pipelined", true, inBatches(64)),
			m.ours(Guard+Pipelined, "PostgreSQL: the same, pipelined", true, oneByOne))
	}
	for _, w := range ways {
		if m.store == server.Postgres || !w.postgresOnly {
			all = append(all, m.theirs(w)...)
		}
	}
	return all
}

func (m market) ours(name, settings string, together bool, sell func(*till, *wllock.Locker) sale) Contender {
	pool := fmt.Sprintf("pool %d", ourPool)
	settings += ": BEGIN, claim for the fence; INSERT, UPDATE, COMMIT. The lock over Redis, all defaults; " + pool
	c := m.one(Subject, ourModule, statements, entry{name, settings, func(o Options) (Instance, error) {
		o.Workers = ourPool
		t, err := m.open(o, together)
		if err != nil {
			return Instance{}, err
		}
		l, err := openLocker(Options{Addr: o.Locks, Locker: o.Locker}, overRedis)
		if err != nil {
			return Instance{}, errors.Join(err, t.Close())
		}
		return Instance{Sell: sell(t, l), Close: func() error { return errors.Join(closed(l), t.Close()) }}, nil
	}})
	c.Locks, c.Setting = true, pool
	return c
}

// theirs are a way to sell with each size of the pool.
func (m market) theirs(w way) []Contender {
	settings := fmt.Sprintf("%s: %s", m.name, w.on(m.store))
	var each []Contender
	for _, size := range pools {
		pool := fmt.Sprintf("pool %d", size)
		name := fmt.Sprintf("%s-%d", w.name, size)
		c := m.one(Rival, m.module, statements, entry{name, settings + "; " + pool, func(o Options) (Instance, error) {
			o.Workers = size
			t, err := m.open(o, true)
			if err != nil {
				return Instance{}, err
			}
			return Instance{Close: t.Close, Sell: func(ctx context.Context, buyer int64) error {
				return t.on(ctx, func(send exchange) error { return w.sell(t, send, buyer) })
			}}, nil
		}})
		c.Setting = pool
		each = append(each, c)
	}
	return tuned(w.name, settings, each...)
}

// sale sells one piece.
type sale = func(ctx context.Context, buyer int64) error

// oneByOne sells one piece in each hold.
func oneByOne(t *till, l *wllock.Locker) sale {
	sell := wllock.Wrap(l, "product", func(int64) string { return server.Product }, func(ctx context.Context, buyer int64) (struct{}, error) {
		held, _ := wllock.HeldFrom(ctx)
		return struct{}{}, t.on(context.WithoutCancel(ctx), func(send exchange) error { return fenced(t, send, held.Fence(), []int64{buyer}) })
	})
	return func(ctx context.Context, buyer int64) error {
		_, err := sell(ctx, buyer)
		return err
	}
}

// inBatches sells to up to n buyers in each hold. They wait until their batch has ended, so that the audit may be exact.
func inBatches(n int) func(*till, *wllock.Locker) sale {
	return func(t *till, l *wllock.Locker) sale {
		sell := wllock.WrapBatch(l, "product", func(int64) string { return server.Product },
			func(ctx context.Context, batch []*wllock.Item[int64, struct{}]) error {
				buyers := make([]int64, len(batch))
				for i, item := range batch {
					buyers[i] = item.Arg
				}
				held, _ := wllock.HeldFrom(ctx)
				return t.on(ctx, func(send exchange) error { return fenced(t, send, held.Fence(), buyers) })
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
		settings := fmt.Sprintf("work: WrapBatch, up to %d callers in each hold, which work once", n)
		rows = append(rows, entry{Batched(n), settings, func(o Options) (Instance, error) {
			l, err := openLocker(o, overRedis)
			if err != nil {
				return Instance{}, err
			}
			in := locks(l)
			in.Do = inOneRun(l, n)
			return in, nil
		}})
	}
	rows = append(rows, entry{Guard, "work: Do, one caller in each hold", opener(overRedis)})
	ideal := Ideal()
	ideal.Group = OverBatch
	return append(at.has(Subject, ourModule, ourCommands, rows...), ideal)
}

// inOneRun runs the function of the first caller of a batch for all of them. Each waits for its end, as it writes to what they will read.
func inOneRun(l *wllock.Locker, n int) func(context.Context, string, func(context.Context) error) error {
	type work = func(context.Context) error
	run := wllock.WrapBatch(l, "key", func(work) string { return server.Product },
		func(ctx context.Context, batch []*wllock.Item[work, struct{}]) error { return batch[0].Arg(ctx) }, wllock.WithMaxBatch(n))
	return func(ctx context.Context, _ string, f func(context.Context) error) error {
		_, err := run(context.WithoutCancel(ctx), f)
		return err
	}
}
