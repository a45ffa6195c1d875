package fenced_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/fenced"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
	"github.com/wllock/wllock/test/history"
)

// childEnv has a process be one of those that count: see counter.
const childEnv = "WLLOCK_TEST_COUNTER"

const (
	// stormTTL is the lease's. Processes stand still for longer than it.
	stormTTL  = time.Second
	stormWait = 5 * time.Second
)

// counter adds 1 to an account again and again, in one process of many. It reads, and writes what it has read and 1, under a lock.
type counter struct {
	Name, Kind, DSN, Driver, Redis string
	Fenced                         bool
}

// run counts until its input ends.
func (c counter) run() error {
	db, err := sql.Open(c.Driver, c.DSN)
	if err != nil {
		return err
	}
	backend, err := redislock.Open(c.Redis)
	if err != nil {
		return err
	}
	journal := history.NewJournal(os.Stdout, c.Name)
	l, err := wllock.New("bank", journal.Places(backend), wllock.WithOwnedBackend(), wllock.WithLeaseTTL(stormTTL))
	if err != nil {
		return err
	}
	guard, err := fenced.New(db, dialects[c.Kind])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	go journal.Watch(ctx)
	for ctx.Err() == nil {
		e := journal.Ask(history.Request{Key: "1", Deadline: history.Clock(time.Now().Add(stormWait))})
		e.Back(l.Do(context.Background(), "account", "1", func(ctx context.Context) error {
			held, _ := wllock.HeldFrom(ctx)
			e.Held(held)
			defer e.Leave(held)
			err := c.tx(ctx, db, guard, func(ctx context.Context, tx *sql.Tx) error { return add(ctx, tx, e) })
			if err == nil {
				e.Note(history.Event{What: history.Wrote})
			}
			return err
		}, wllock.WithWait(stormWait)))
	}
	return nil
}

func (c counter) tx(ctx context.Context, db *sql.DB, guard *fenced.Guard, fn func(context.Context, *sql.Tx) error) error {
	if c.Fenced {
		return guard.Tx(ctx, fn)
	}
	ctx = context.WithoutCancel(ctx)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// add is the transaction. It thinks between what it reads and what it writes, and is slow to look at its context. It takes effect at its
// commit, which comes after the line that announces the write.
func add(ctx context.Context, tx *sql.Tx, e history.Entry) error {
	ctx = context.WithoutCancel(ctx)
	var qty int64
	if err := tx.QueryRowContext(ctx, "SELECT qty FROM stock WHERE id = 1000").Scan(&qty); err != nil {
		return err
	}
	e.Note(history.Event{What: history.Write, Was: qty, New: qty + 1})
	time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
	_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE stock SET qty = %d WHERE id = 1000", qty+1))
	return err
}

// TestAnAccountIsLinearizableWithFences: processes that are killed, and that stand still for longer than their lease in the middle of a
// transaction. Without the fence the same run loses updates, or it would prove nothing.
func TestAnAccountIsLinearizableWithFences(t *testing.T) {
	testscope.Long(t, "kills and stops processes")
	for _, kind := range []string{"postgres", "mariadb", "sqlite"} {
		for _, with := range []bool{true, false} {
			if kind == "sqlite" && !with {
				continue // it refuses a write after what was read has changed
			}
			t.Run(fmt.Sprint(kind, ", fenced: ", with), func(t *testing.T) {
				db := kinds[kind](t, near)
				db.guard(t)
				run, err := history.NewRun(t.ArtifactDir())
				require.NoError(t, err)
				c := counter{Kind: kind, DSN: db.dsn, Driver: db.driver, Redis: "redis://" + redistest.Start(t).Addr, Fenced: with}
				storm(t, run, c, testscope.Scale(20*time.Second, 3*time.Minute))
				require.NoError(t, run.End())
				t.Logf("%d calls, %d faults, the account has %d", len(run.Calls), len(run.Faults), db.qty(t))
				judge(t, run, with)
			})
		}
	}
}

const stormProcesses = 8

// storm is a run of several counters.
func storm(t *testing.T, run *history.Run, c counter, d time.Duration) {
	seed := testseed.Seed(t)
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for i := range stormProcesses {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for life := 0; time.Now().Before(end); life++ {
				c := c
				c.Name = fmt.Sprintf("p%d.%d", i, life)
				if err := c.live(run, rnd, end); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// live is the life of a process, which is killed, or ends with the storm. In the middle of its transactions it is disturbed now and then.
func (c counter) live(run *history.Run, rnd *rand.Rand, end time.Time) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	killed, dead := make(chan struct{}), false
	p, err := run.Start(c.Name, childEnv+"="+string(text), func(p *history.Process, e history.Event, _ *history.Call) {
		if e.What == history.Write && !dead && disturb(p, rnd) {
			dead = true
			close(killed)
		}
	})
	if err != nil {
		return err
	}
	select {
	case <-killed:
	case <-time.After(time.Until(end)):
	}
	return p.End()
}

// disturb kills a process, or has it stand still for longer than its lease, or most often does neither.
func disturb(p *history.Process, rnd *rand.Rand) (killed bool) {
	n := rnd.IntN(80)
	if n > 4 {
		return false
	}
	time.Sleep(time.Duration(rnd.IntN(5)) * time.Millisecond)
	if n == 0 {
		p.Kill()
		return true
	}
	p.Stop(func() { time.Sleep(stormTTL + time.Duration(rnd.IntN(1500))*time.Millisecond) })
	return false
}

func judge(t *testing.T, run *history.Run, fenced bool) {
	require.NoError(t, run.Count().Enough(history.Need{Entries: 100, Contended: 50, Hits: []string{history.Stop}}))
	rules := history.Rules{Store: history.Compares, Initial: 10, Late: time.Second}
	if !fenced {
		rules.Store = history.Blind
	}
	found := run.Check(rules)
	require.NoError(t, run.DrawAll(found))
	for i, v := range found {
		t.Logf("%d.svg: %v", i, v)
	}
	if fenced {
		require.Empty(t, found)
		return
	}
	require.NotEmpty(t, found, "without fences nothing was lost: the run proves nothing")
	for _, v := range found {
		require.Equal(t, "linearizable", v.Rule)
	}
}
