package fenced_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testproc"
)

// BenchmarkTx compares a transaction of one statement with one that claims first, near a server and half a millisecond away from it.
func BenchmarkTx(b *testing.B) {
	for _, kind := range []string{"postgres", "mariadb", "sqlite"} {
		for name, trip := range map[string]time.Duration{"near": 0, "far": 500 * time.Microsecond} {
			if kind == "sqlite" && trip > 0 {
				continue
			}
			at := near
			if trip > 0 {
				at = func(addr string) string {
					p := testproc.NewProxy(b, addr)
					p.SetDelay(trip / 2)
					return p.Addr
				}
			}
			db := kinds[kind](b, at)
			g := db.guard(b)
			ctx := hold(b)
			b.Run(kind+"/"+name+"/plain", func(b *testing.B) {
				for b.Loop() {
					tx, err := db.BeginTx(ctx, nil)
					require.NoError(b, err)
					require.NoError(b, sell(ctx, tx))
					require.NoError(b, tx.Commit())
				}
			})
			b.Run(kind+"/"+name+"/fenced", func(b *testing.B) {
				for b.Loop() {
					require.NoError(b, g.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return sell(ctx, tx) }))
				}
			})
		}
	}
}
