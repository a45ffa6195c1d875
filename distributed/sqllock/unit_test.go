package sqllock

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	db := newSQLite(t).pool(t)
	for name, wrong := range map[string][]Option{
		"table": {WithTable("a;b")}, "empty table": {WithTable("")}, "schema": {WithSchema("a.b")}, "logger": {WithLogger(nil)},
		"parallel": {WithParallel(0)}, "age": {WithReapAge(time.Minute)}, "nil": {nil}, "long": {WithTable(strings.Repeat("x", 49))},
		"notifier": {WithNotifier(struct{ Notifier }{})},
	} {
		_, err := New(db, SQLite, wrong...)
		require.Error(t, err, name)
	}
	_, err := New(db, Dialect(9))
	require.Error(t, err)
	_, err = New(nil, SQLite)
	require.Error(t, err)
}

// Tables of another name, or in another schema, are others. A schema may have a word of SQL for a name. Without tables the error says what
// to do.
func TestTables(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		places := map[string]Option{"table": WithTable("other"), "schema": WithSchema("order")}
		if d.dialect == SQLite {
			places["schema"] = func(s *settings) { s.schema, s.prefix = "main", "third" }
		}
		held := enter(t, d.backend(t), "k")
		for name, at := range places {
			b := d.backend(t, at)
			if name == "schema" && d.dialect != SQLite {
				quoted := b.is.quote + "order" + b.is.quote
				run(t, b, "CREATE SCHEMA "+quoted)
				t.Cleanup(func() { _, _ = b.db.ExecContext(context.Background(), "DROP SCHEMA "+quoted) })
			}
			for range 2 {
				err := b.Ping(t.Context())
				require.ErrorIs(t, err, distributed.ErrUnavailable)
				require.ErrorIs(t, err, distributed.ErrRefused)
				require.ErrorContains(t, err, "sqllock.Migrate")
			}
			_, _, err := try(t.Context(), b, "k")
			for _, once := range []string{"sqllock.Migrate", "sqllock: "} {
				require.Equal(t, 1, strings.Count(err.Error(), once), err.Error())
			}
			for range 2 {
				require.NoError(t, Migrate(t.Context(), b.db, d.dialect, at))
			}
			require.NoError(t, b.Ping(t.Context()))
			require.Zero(t, rowsOf(t, b, "locks"), "a Ping leaves nothing")
			free(t, enter(t, b, "k"))
		}
		free(t, held)
	})
}

// Processes that begin together may all create the tables.
func TestMigrateAtTheSameTime(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		for _, prefix := range []string{"one", "two", "three"} {
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() { assert.NoError(t, Migrate(t.Context(), d.pool(t), d.dialect, WithTable(prefix))) })
			}
			all.Wait()
		}
	})
}

func TestLongestTTL(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		a, b := d.backend(t), d.backend(t)
		for _, step := range []struct {
			of        *Backend
			system    string
			own, want time.Duration
		}{
			{a, "shop", time.Minute, time.Minute}, {b, "shop", time.Second, time.Minute}, {b, "shop2", time.Second, time.Second},
			{b, "sho", time.Second, time.Second}, {a, strings.Repeat("x", 64), time.Second, time.Second},
		} {
			got, err := step.of.LongestTTL(t.Context(), step.system, step.own)
			require.NoError(t, err)
			require.Equal(t, step.want, got, step.system)
		}
		aged(t, a, time.Hour)
		got, err := b.LongestTTL(t.Context(), "shop", time.Second)
		require.NoError(t, err)
		require.Equal(t, time.Second, got, "a note that is not repeated is forgotten")
	})
}

func TestStoredName(t *testing.T) {
	seen := map[string]string{}
	for _, key := range []string{
		"a", "a ", "A", strings.Repeat("x", longestName), strings.Repeat("x", longestName+1), strings.Repeat("x", longestName+2), "#a",
		"\xff", "\xfe", "a\x00b", "#", "ä",
	} {
		name, full := storedName(key)
		require.LessOrEqual(t, len(name), longestName)
		require.Empty(t, seen[name], "%q and %q", key, seen[name])
		seen[name] = key
		require.Equal(t, name != key, full != "", key)
	}
}

func TestKinds(t *testing.T) {
	for want, errs := range map[effect][]error{
		collided: {
			&pgconn.PgError{Code: "40P01"}, &mysql.MySQLError{Number: 1213, SQLState: [5]byte{'4', '0', '0', '0', '1'}, Message: "Deadlock"},
			errors.New("database is locked"), fmt.Errorf("x: %w", &pgconn.PgError{Code: "40001"}),
		},
		refused:   {&pgconn.PgError{Code: "42501"}, &mysql.MySQLError{Number: 1142}},
		unable:    {&pgconn.PgError{Code: "25006"}, &mysql.MySQLError{Number: 1290}, errors.New("attempt to write a readonly database")},
		unreached: {&net.OpError{Op: "dial", Err: errors.New("refused")}, &pgconn.PgError{Code: "57P03"}},
		crowded:   {&pgconn.PgError{Code: "53300"}, &mysql.MySQLError{Number: 1040}},
		missing:   {&pgconn.PgError{Code: "42P01"}, &mysql.MySQLError{Number: 1146}},
		lost:      {driver.ErrBadConn, context.DeadlineExceeded, errors.New("unexpected EOF"), &pgconn.PgError{Code: "57P01"}},
	} {
		for _, err := range errs {
			require.Equal(t, want, effectOf(err), "%v", err)
		}
	}
}

// The answer to a request says how many are before it, so the first look is when it may be its turn, and not at once.
func TestARequestIsToldItsPlace(t *testing.T) {
	exclusive, shared := claim{mode: distributed.Exclusive}, claim{mode: distributed.Shared}
	permit := claim{mode: distributed.Shared, limit: 3}
	reader, writer := entry{mode: distributed.Shared}, entry{mode: distributed.Exclusive}
	holder, limited := entry{mode: distributed.Shared, holds: true}, entry{mode: distributed.Shared, limit: 3}
	for _, c := range []struct {
		claim claim
		queue []entry
		want  int
	}{
		{exclusive, nil, 0},
		{exclusive, []entry{holder, reader, writer}, 2},
		{shared, []entry{holder, reader, writer}, 1},
		{shared, []entry{limited, writer}, 2},
		{permit, []entry{reader, writer}, 2},
	} {
		s := &state{owner: "other", expires: 1, ttl: 1, entries: c.queue}
		for i := range s.entries {
			s.entries[i].token, s.entries[i].expires, s.entries[i].ttl = "before", 1, 1
		}
		got := s.enter(&c.claim)
		require.Equal(t, queuedUp, got.outcome)
		require.Equal(t, c.want, got.ahead)
	}
	eachBackend(t, func(t *testing.T, _ *database, b *Backend) {
		enter(t, b, "k")
		for ahead := range 3 {
			queue(t, b, "k", by("waiter"))
			w := &b.known.of("k")[1+ahead].Wire
			w.mu.Lock()
			require.Equal(t, ahead, w.pace.ahead)
			w.mu.Unlock()
		}
	})
}

// A fence is not below the database's time, however old those of the row are, and above those of the row, whatever the time is.
func TestFencesOfATransaction(t *testing.T) {
	s := &state{now: 5_000_000, fence: 7}
	got := s.enter(&claim{token: "first", ttl: time.Second})
	require.Equal(t, granted, got.outcome)
	require.EqualValues(t, 5_000_000*nsPerTick+fenceBlock, got.last)
	s.now = 1
	require.Equal(t, got.last+fenceBlock, s.refill("first").last)
}

// The clock was set back: owner and waiter last for no longer than their TTL from when somebody has looked.
func TestRightsOfBeforeTheClockWasSetBack(t *testing.T) {
	s := &state{now: 1000, owner: "dead", ttl: 50, expires: 5000, entries: []entry{{token: "dead as well", ttl: 50, expires: 5000}}}
	s.tidy()
	require.True(t, s.dirty && s.entries[0].changed, "they are written")
	s.now += 50
	s.tidy()
	require.Empty(t, s.owner)
	require.Empty(t, s.entries)
	require.Equal(t, []string{"dead as well"}, s.removed)
}
