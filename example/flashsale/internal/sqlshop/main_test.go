package sqlshop

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed/sqllock/mysql"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/internal/dbtest"
)

func TestMain(m *testing.M) {
	Servers["mysql"], Servers["postgres"] = mysql.OpenDB, postgres.OpenDB
	goleak.VerifyTestMain(dbtest.Main(m))
}

// onEach runs a test on every database, with an empty one of its own.
func onEach(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	for name, url := range map[string]func(*testing.T) string{
		"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "sho p.db") },
		"PostgreSQL": func(t *testing.T) string { return dbtest.SharedPostgres(t).URL() },
		"MariaDB":    func(t *testing.T) string { return dbtest.SharedMariaDB(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, url(t))
		})
	}
}

func atOnce(context.Context) error { return nil }

// open opens a shop that thinks in this way, with a pool of 4.
func open(t *testing.T, url string, think func(context.Context) error) *Shop {
	t.Helper()
	s, err := Open(url, 4, think)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// create opens a shop and makes its tables.
func create(t *testing.T, url string, stock int, think func(context.Context) error) *Shop {
	t.Helper()
	s := open(t, url, think)
	require.NoError(t, s.Create(t.Context()))
	require.NoError(t, s.Stock(t.Context(), "p", stock))
	return s
}

func (s *Shop) expect(t *testing.T, want Audit) {
	t.Helper()
	got, err := s.Audit(t.Context(), "p")
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// ways are the orders of a shop that need no lock. All but the first sell every piece once.
var ways = map[string]func(s *Shop, ctx context.Context, product, buyer string) error{
	"none": (*Shop).ReadThenWrite, "optimistic": (*Shop).Optimistic, "pessimistic": (*Shop).Pessimistic, "statement": (*Shop).OneStatement,
}

// eachWay runs a test for every way, on tables that it creates anew.
func eachWay(t *testing.T, test func(t *testing.T, way string, order func(s *Shop, ctx context.Context, product, buyer string) error)) {
	t.Helper()
	for way, order := range ways {
		t.Run(way, func(t *testing.T) { test(t, way, order) })
	}
}
