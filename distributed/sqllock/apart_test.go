package sqllock

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// system is a schema, in MySQL a database, with the tables of one system, and the account of that name, which may use them.
type system struct {
	*database
	name string
}

// newSystem makes it by the statements of docs/sql.md.
func newSystem(t *testing.T, d *database) system {
	t.Helper()
	first, drop := "CREATE ROLE shop ", "DROP SCHEMA shop CASCADE; DROP OWNED BY shop; DROP ROLE shop"
	if d.dialect == MySQL {
		first, drop = "CREATE USER shop ", "DROP USER shop; DROP DATABASE shop"
	}
	name := fmt.Sprint("shop", accounts.Add(1))
	named := strings.NewReplacer("shop", name).Replace
	_, rest, found := strings.Cut(guide(t), "\n"+first)
	require.True(t, found)
	statements, _, _ := strings.Cut(first+rest, "```")
	t.Cleanup(func() { d.server.Exec(named(drop)) })
	for line := range strings.Lines(statements) {
		d.server.Exec(named(strings.TrimSpace(line)))
		if strings.Contains(line, "then the tables") {
			require.NoError(t, Migrate(t.Context(), d.pool(t), d.dialect, WithSchema(name)))
		}
	}
	server := *d.server
	if d.dialect == MySQL {
		server.Database = name // it may use no other
	}
	return system{at(server.URLFor(server.Addr, name, "change-me")), name}
}

// attacks are what the account of another system may try, with what it could know of a lock: each is refused. It may do what is allowed, of
// which nobody is to notice anything.
func (s system) attacks(d *database, key string) (refused, allowed []string) {
	ask := func(text string) string {
		return strings.TrimSpace(d.server.Exec(strings.ReplaceAll(text, "shop", s.name)))
	}
	locks, waiters := s.name+".wllock_locks", s.name+".wllock_waiters"
	for _, table := range []string{locks, waiters, s.name + ".wllock_meta", s.name + ".wllock_runs"} {
		refused = append(refused, "SELECT COUNT(*) FROM "+table, "DELETE FROM "+table, "DROP TABLE "+table, "TRUNCATE TABLE "+table,
			"ALTER TABLE "+table+" ADD COLUMN x int", "CREATE INDEX x ON "+table+" (name)", "SELECT * FROM "+table+" FOR UPDATE", "GRANT SELECT ON "+table+" TO "+s.name)
	}
	refused = append(refused, "UPDATE "+locks+" SET fence = 9000000000000000000", "UPDATE "+locks+" SET owner = '' WHERE name = '"+key+"'",
		"INSERT INTO "+locks+" (name, fence, update_time) VALUES ('x', 9000000000000000000, 0)",
		"INSERT INTO "+waiters+" (name, ticket, token, mode, state, ttl, expires_at) VALUES ('"+key+"', 1, 'ghost', 0, 0, 3600000000, 9000000000000000000)",
		"CREATE TABLE "+s.name+".wllock_more (x int)")
	if d.dialect == MySQL {
		connection := ask("SELECT id FROM information_schema.processlist WHERE user = 'shop' LIMIT 1")
		return append(refused, "LOCK TABLES "+locks+" WRITE", "SET GLOBAL read_only = 1", "FLUSH TABLES WITH READ LOCK", "DROP DATABASE "+s.name,
				"CREATE TRIGGER "+s.name+".t BEFORE UPDATE ON "+locks+" FOR EACH ROW SET NEW.fence = 1", "KILL "+connection,
				"CREATE VIEW v AS SELECT * FROM "+locks, "SHOW CREATE TABLE "+locks),
			[]string{"SELECT GET_LOCK('" + key + "', 0)", "SELECT RELEASE_ALL_LOCKS()", "SHOW PROCESSLIST", "SELECT COUNT(*) FROM information_schema.tables", "SET SESSION lock_wait_timeout = 1"}
	}
	allowed = []string{"SELECT pg_try_advisory_lock(1)", "SELECT pg_advisory_unlock_all()", "SELECT COUNT(*) FROM pg_stat_activity", "CREATE TEMP TABLE IF NOT EXISTS wllock_locks (x int)"}
	tokens := ask("SELECT owner FROM shop.wllock_locks WHERE owner <> '' UNION ALL SELECT token FROM shop.wllock_waiters")
	for token := range strings.FieldsSeq(tokens) {
		process, _, _ := strings.Cut(token, ".")
		channel := "wllock_" + strings.ToLower(process)
		allowed = append(allowed, "NOTIFY "+channel+", '"+token+"'", "NOTIFY "+channel+", 'ghost'", "NOTIFY "+channel, "LISTEN "+channel)
	}
	return append(refused, "DO $$ BEGIN LOCK TABLE "+locks+"; END $$", "SET ROLE "+s.name, "SET SESSION AUTHORIZATION "+s.name, "DROP SCHEMA "+s.name+" CASCADE", "ALTER ROLE "+s.name+" PASSWORD 'y'",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+s.name+"'", "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = '"+s.name+"'",
		"ALTER SYSTEM SET max_connections = 1", "CREATE SCHEMA x", "CREATE FUNCTION public.x() RETURNS int LANGUAGE sql AS 'SELECT 1'"), allowed
}

// isDenied reports that a database has refused a statement for want of a right.
func isDenied(err error) bool {
	if p := (*pgconn.PgError)(nil); errors.As(err, &p) {
		return p.Code == "42501"
	}
	m := (*mysqldriver.MySQLError)(nil)
	return errors.As(err, &m) && slices.Contains([]uint16{1044, 1095, 1142, 1143, 1227, 1370}, m.Number)
}

// attackedBy runs tries statements of shop's account against bank's locks, each once if that is 0.
func attackedBy(t *testing.T, d *database, tries int) (longest time.Duration) {
	t.Helper()
	bank, shop := newSystem(t, d), newSystem(t, d)
	one := bank.backend(t, WithSchema(bank.name))
	other := bank.backend(t, WithSchema(bank.name))
	if d.dialect == MySQL { // there the schema is the database of the URL
		other = bank.backend(t)
	}
	require.NoError(t, one.Ping(t.Context()))
	require.NoError(t, shop.backend(t, WithSchema(shop.name)).Ping(t.Context()))
	require.ErrorIs(t, shop.backend(t, WithSchema(bank.name)).Ping(t.Context()), distributed.ErrRefused)
	db := shop.pool(t)
	db.SetMaxOpenConns(4)
	const key = "bank:acct:9"
	return testlocker.Victims{One: one, Other: other, Key: key, Load: "bank:load"}.Undisturbed(t, func(distributed.Lease, distributed.Place) {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}) // it keeps old rows from being removed
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), "SELECT 1")
		require.NoError(t, err)
		refused, allowed := bank.attacks(d, key)
		rnd := rand.New(rand.NewPCG(1, 2)) // the same statements each time
		order := rnd.Perm(len(refused) + len(allowed))
		for i := range cmp.Or(tries, len(order)) {
			if tries > 0 {
				i = rnd.IntN(len(order))
			}
			if i = order[i%len(order)]; i >= len(refused) {
				_, err := db.ExecContext(t.Context(), allowed[i-len(refused)])
				require.NoError(t, err, allowed[i-len(refused)])
				continue
			}
			_, err := db.ExecContext(t.Context(), refused[i])
			require.True(t, isDenied(err), "%s: %v", refused[i], err)
		}
	})
}

// TestAnotherSystemsUserHasNoRightToALock: the documented statements keep systems apart.
func TestAnotherSystemsUserHasNoRightToALock(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) { attackedBy(t, d, 0) })
}

// TestAnotherSystemsUserDisturbsNobody: the same in random order, thousands of times.
func TestAnotherSystemsUserDisturbsNobody(t *testing.T) {
	testscope.Long(t, "a storm of statements")
	onOwnServers(t, func(t *testing.T, d *database) {
		testscope.InTime(t, attackedBy(t, d, testscope.Scale(10_000, 200_000)), 2*time.Second, "the longest wait")
	})
}
