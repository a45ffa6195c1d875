package sqllock

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
)

// BenchmarkLone compares a lone caller with plain statements: an UPDATE of one row, as often as the lock needs one.
func BenchmarkLone(b *testing.B) {
	for _, name := range []string{"sqlite", "postgres", "mariadb"} {
		d := databases[name](b)
		backend := d.backend(b)
		backend.db.SetMaxOpenConns(2)
		enterOnce := func(prev distributed.Lease) distributed.Lease {
			l, _, err := backend.Enter(b.Context(), distributed.Request{Key: "key", Instance: "i", TTL: time.Minute, Prev: prev})
			if err != nil || l == nil {
				b.Fatal(err)
			}
			return l
		}
		if err := enterOnce(nil).Release(b.Context()); err != nil {
			b.Fatal(err)
		}
		if _, err := backend.db.ExecContext(b.Context(), "CREATE TABLE plain (name VARCHAR(100) PRIMARY KEY, n BIGINT)"); err != nil {
			b.Fatal(err)
		}
		if _, err := backend.db.ExecContext(b.Context(), "INSERT INTO plain VALUES ('key', 0)"); err != nil {
			b.Fatal(err)
		}
		q := d.dialect.compile("UPDATE plain SET n = n + $2 WHERE name = $1")
		update := func() {
			if _, err := backend.db.ExecContext(b.Context(), q.text, q.args("key", 1)...); err != nil {
				b.Fatal(err)
			}
		}
		var last distributed.Lease
		for what, round := range map[string]func(){
			"lock and unlock": func() {
				if err := enterOnce(nil).Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			},
			"two updates": func() { update(); update() },
			"one update":  update,
		} {
			b.Run(fmt.Sprintf("%s/%s", name, what), func(b *testing.B) { median(b, round) })
		}
		b.Run(name+"/lock again", func(b *testing.B) { median(b, func() { last = enterOnce(last) }) })
		_ = last.Release(b.Context())
	}
}

// median reports the median of a round.
func median(b *testing.B, round func()) {
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		start := time.Now()
		round()
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/median")
}
