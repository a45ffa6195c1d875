package fenced_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/fenced"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// childEnv has a process be one of those that count: see counter.
const childEnv = "WLLOCK_TEST_COUNTER"

// stormTTL is the lease's. Processes stand still for longer than it.
const stormTTL = time.Second

// counter adds 1 to an account again and again, in one process of many. It reads, and writes what it has read and 1, under a lock.
type counter struct {
	Kind, DSN, Driver, Redis string
	Fenced                   bool
}

// event is what a counter says: when it has read, and when it has committed.
type event struct {
	Call, At int64 // when the transaction was begun, and now, in ns of this machine's clock
	Read     int64
	Done     bool
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
	l, err := wllock.New("bank", backend, wllock.WithOwnedBackend(), wllock.WithLeaseTTL(stormTTL))
	if err != nil {
		return err
	}
	guard, err := fenced.New(db, dialects[c.Kind])
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	out := json.NewEncoder(os.Stdout)
	for {
		select {
		case <-ended:
			return nil
		default:
		}
		e := event{}
		err := l.Do(context.Background(), "account", "1", func(ctx context.Context) error {
			e.Call = time.Now().UnixNano()
			add := func(ctx context.Context, tx *sql.Tx) error { return add(ctx, tx, out, &e) }
			if c.Fenced {
				return guard.Tx(ctx, add)
			}
			ctx = context.WithoutCancel(ctx)
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := add(ctx, tx); err != nil {
				return err
			}
			return tx.Commit()
		}, wllock.WithWait(5*time.Second))
		if e.Done = err == nil; e.Done {
			e.At = time.Now().UnixNano()
			_ = out.Encode(e)
		}
	}
}

// add is the transaction. It thinks between what it reads and what it writes, and is slow to look at its context.
func add(ctx context.Context, tx *sql.Tx, out *json.Encoder, e *event) error {
	ctx = context.WithoutCancel(ctx)
	err := tx.QueryRowContext(ctx, "SELECT qty FROM stock WHERE id = 1000").Scan(&e.Read)
	if err == nil {
		err = out.Encode(e) // the intent
	}
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
	_, err = tx.ExecContext(ctx, fmt.Sprintf("UPDATE stock SET qty = %d WHERE id = 1000", e.Read+1))
	return err
}

// account is the sequential specification: an operation reads a number, and writes the next one. One that has no answer may not have been
// carried out.
var account = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{int64(10)} },
	Step: func(balance, in, known any) (next []any) {
		if balance == in.(event).Read {
			next = append(next, in.(event).Read+1)
		}
		if !known.(bool) {
			next = append(next, balance)
		}
		return next
	},
}).ToModel()

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
				s := storm{t: t, db: db, c: counter{kind, db.dsn, db.driver, "redis://" + redistest.Start(t).Addr, with}}
				s.run(testscope.Scale(20*time.Second, 3*time.Minute))
				s.judge()
			})
		}
	}
}

// storm is a run of several counters.
type storm struct {
	t  *testing.T
	db *database
	c  counter

	mu      sync.Mutex // guards all below
	history []porcupine.Operation
	faults  int
}

const stormProcesses = 8

func (s *storm) run(d time.Duration) {
	seed := testseed.Seed(s.t)
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for i := range stormProcesses {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for time.Now().Before(end) {
				if err := s.life(i, rnd, end); err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// life is that of one process, which is killed, or ends with the storm. It stands still now and then.
func (s *storm) life(client int, rnd *rand.Rand, end time.Time) error {
	text, err := json.Marshal(s.c)
	if err != nil {
		return err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"="+string(text)), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ends := time.AfterFunc(time.Until(end), func() { _ = in.Close() })
	defer ends.Stop()
	s.read(client, out, func() { s.disturb(cmd.Process, rnd) })
	_ = in.Close()
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return err
	}
	return nil
}

// disturb now and then kills a process that is in the middle of its transaction, or has it stand still for longer than its lease.
func (s *storm) disturb(p *os.Process, rnd *rand.Rand) {
	n := rnd.IntN(80)
	if n > 4 {
		return
	}
	s.mu.Lock()
	s.faults++
	s.mu.Unlock()
	time.Sleep(time.Duration(rnd.IntN(5)) * time.Millisecond)
	if n == 0 {
		_ = p.Kill()
		return
	}
	_ = p.Signal(syscall.SIGSTOP)
	time.Sleep(stormTTL + time.Duration(rnd.IntN(1500))*time.Millisecond)
	_ = p.Signal(syscall.SIGCONT)
}

// read makes a history of what a process says, and calls intends when it is about to write. An operation whose end it does not say may have
// been carried out at any time.
func (s *storm) read(client int, out io.Reader, intends func()) {
	var open *event
	note := func(e event, end int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.history = append(s.history, porcupine.Operation{ClientId: client, Input: e, Call: e.Call, Output: e.Done, Return: end})
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e event
		switch err := json.Unmarshal(lines.Bytes(), &e); {
		case err != nil: // it was killed in the middle of a line
		case e.Done:
			note(e, e.At)
			open = nil
		default:
			if open != nil {
				note(*open, math.MaxInt64)
			}
			open = &e
			intends()
		}
	}
	if open != nil {
		note(*open, math.MaxInt64)
	}
}

func (s *storm) judge() {
	done := 0
	for _, o := range s.history {
		if o.Output.(bool) {
			done++
		}
	}
	s.t.Logf("%d operations, %d of them with an answer, %d faults, the account has %d", len(s.history), done, s.faults, s.db.qty(s.t))
	require.Greater(s.t, done, 100, "the run did too little")
	require.Greater(s.t, s.faults, 10, "the run did too little")
	result := porcupine.CheckOperationsTimeout(account, s.history, time.Minute)
	if s.c.Fenced {
		require.Equal(s.t, porcupine.Ok, result)
	} else {
		require.Equal(s.t, porcupine.Illegal, result, "without fences nothing was lost: the run proves nothing")
	}
}
