package sqllock

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/dbtest"
)

// BenchmarkLone compares a lone caller with plain statements of the same shape: a prepared UPDATE of a row of such a table by its
// primary key, which commits by itself, as often as the lock needs one. The rounds take turns, so that all meet the same machine.
// WLLOCK_DURABLE=1: commits wait for the disk.
func BenchmarkLone(b *testing.B) {
	for _, name := range []string{"sqlite", "postgres", "mariadb"} {
		b.Run(name, func(b *testing.B) {
			open := databases[name]
			if os.Getenv("WLLOCK_DURABLE") == "1" {
				open = durable[name]
			}
			backend := open(b).backend(b)
			backend.db.SetMaxOpenConns(2)
			update := plainUpdate(b, backend)
			last := enter(b, backend, "key")
			rounds := []func(){
				update,
				func() { update(); update() },
				func() { last = enter(b, backend, "key", prevIs(last)) },
				func() {
					if err := enter(b, backend, "other").Release(b.Context()); err != nil {
						b.Fatal(err)
					}
				},
			}
			m := medians(b, rounds)
			for i, what := range []string{"1-update", "2-updates", "lock-again", "lock+unlock"} {
				b.ReportMetric(m[i], "µs/"+what)
			}
			b.ReportMetric(m[2]/m[0], "x/lock-again")
			b.ReportMetric(m[3]/m[1], "x/lock+unlock")
			_ = last.Release(b.Context())
		})
	}
}

// durable are databases whose commits wait for the disk.
var durable = map[string]func(t locktest.TB) *database{
	"sqlite": func(t locktest.TB) *database {
		return newFile(t, "journal_mode(WAL)", "busy_timeout(200)", "synchronous(FULL)")
	},
	"postgres": func(t locktest.TB) *database { return newServer(t, dbtest.Postgres(t)) },
	"mariadb":  func(t locktest.TB) *database { return newServer(t, dbtest.MariaDB(t)) },
}

// plainUpdate returns the plain statement.
func plainUpdate(b *testing.B, backend *Backend) func() {
	run(b, backend, "INSERT INTO {locks} (name, fence, update_time) VALUES ('plain', 1, 1)")
	q := backend.dialect.compile(backend.st().text(
		"UPDATE {locks} SET owner = $2, fence = fence + $3, expires_at = {now} + $4, instance = $5, update_time = {now} WHERE name = $1"))
	stmt, err := backend.db.PrepareContext(b.Context(), q.text)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = stmt.Close() })
	n := 0
	return func() {
		n++
		if _, err := stmt.ExecContext(b.Context(), q.args("plain", fmt.Sprint("token", n%10), 1, 1000, "i")...); err != nil {
			b.Fatal(err)
		}
	}
}

// medians returns the median of each round, in microseconds.
func medians(b *testing.B, rounds []func()) []float64 {
	took := make([][]time.Duration, len(rounds))
	for b.Loop() {
		for i, round := range rounds {
			start := time.Now()
			round()
			took[i] = append(took[i], time.Since(start))
		}
	}
	m := make([]float64, len(rounds))
	for i, all := range took {
		slices.Sort(all)
		m[i] = float64(all[len(all)/2].Nanoseconds()) / 1000
	}
	return m
}
