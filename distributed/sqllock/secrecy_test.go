package sqllock

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// No part of a key leaves the process, whatever a database and its driver say.
func TestNoKeyLeavesWithRedaction(t *testing.T) {
	testscope.Long(t, "takes tables and connections away")
	for name, start := range databases {
		t.Run(name, func(t *testing.T) {
			d := start(locktest.TB(t))
			operator := d.over(d.connector).pool(t)
			tables := func(from, to string) {
				for _, table := range []string{"locks", "waiters"} {
					_, err := operator.ExecContext(t.Context(), fmt.Sprintf("ALTER TABLE %s_%s RENAME TO %s_%s", from, table, to, table))
					require.NoError(t, err)
				}
			}
			testlocker.Secrecy{
				System: "shop", TTL: 3 * time.Second,
				Open: func(t *testing.T, log *slog.Logger) distributed.Backend { return d.backend(t, WithLogger(log)) },
				Hinders: map[string]func(*testing.T) func(){
					"a cut": func(*testing.T) func() { d.wire.setCut(true); return func() { d.wire.setCut(false) } },
					"no tables": func(*testing.T) func() {
						tables(DefaultTable, "gone")
						return func() { tables("gone", DefaultTable) }
					},
					"statements that name the row": func(*testing.T) func() {
						d.wire.filtered(func(s *statement) error { return fmt.Errorf("Duplicate entry %v for %s", s.args, s.text) })
						return func() { d.wire.filtered(nil) }
					},
				},
			}.Run(t)
		})
	}
}
