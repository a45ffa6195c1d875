package sqllock_test

import (
	"bytes"
	"database/sql"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/dbtest"
)

// The statements of docs/sql.md run: the queries show the holder and the waiter, and what ends a lease lets the waiter have the lock.
func TestStatementsOfTheGuideRun(t *testing.T) {
	onEach(t, true, func(t *testing.T, d database) {
		b, key := d.backend(t, nil), newName("k")
		l := acquired(t, b, request(key, safely))
		p := place(t, b, request(key, safely))
		heading := map[sqllock.Dialect]string{sqllock.PostgreSQL: "\nPostgreSQL:\n", sqllock.MySQL: "\nMySQL and MariaDB", sqllock.SQLite: "\nSQLite:\n"}[d.dialect]
		for _, query := range []string{statementAfter(t, heading), statementAfter(t, "\nAny database, who waits")} {
			rows, err := d.pool(t, nil).Query(query)
			require.NoError(t, err, query)
			n := 0
			for rows.Next() {
				n++
			}
			require.NoError(t, rows.Err())
			require.NoError(t, rows.Close())
			require.Equal(t, 1, n, query)
		}
		_, err := d.pool(t, nil).Exec(strings.ReplaceAll(statementAfter(t, "\nAny database, to end the lease"), "shop:product:1000", key))
		require.NoError(t, err)
		release(t, granted(t, p))
		lost(t, l)
	})
}

// What the guide says of PostgreSQL 14 is right of later ones, and the parameters of a DSN that it names leave New nothing to say.
func TestSettingsOfTheGuide(t *testing.T) {
	t.Parallel()
	text := guide(t)
	const revoke = "REVOKE CREATE ON SCHEMA public FROM PUBLIC"
	require.Contains(t, text, "`"+revoke+"`")
	dbtest.SharedPostgres(t).NewDatabase(t).Exec(revoke)

	_, params, _ := strings.Cut(text, "`autocommit=1&")
	params, _, _ = strings.Cut("autocommit=1&"+params, "`")
	u, err := url.Parse(dbtest.SharedMariaDB(t).NewDatabase(t).URL())
	require.NoError(t, err)
	password, _ := u.User.Password()
	db, err := sql.Open("mysql", u.User.Username()+":"+password+"@tcp("+u.Host+")"+u.Path+"?"+params)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, sqllock.Migrate(t.Context(), db, sqllock.MySQL))
	var lines bytes.Buffer
	b, err := sqllock.New(db, sqllock.MySQL, sqllock.WithLogger(slog.New(slog.NewTextHandler(&lines, nil))))
	require.NoError(t, err)
	release(t, acquired(t, b, request(newName("é"), safely)))
	require.NoError(t, b.Close())
	require.Empty(t, lines.String())
}

func guide(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/sql.md")
	require.NoError(t, err)
	return string(text)
}

// statementAfter returns the statement of the first block of SQL after a heading.
func statementAfter(t *testing.T, heading string) string {
	t.Helper()
	_, after, found := strings.Cut(guide(t), heading)
	require.True(t, found, heading)
	_, block, _ := strings.Cut(after, "```sql\n")
	block, _, _ = strings.Cut(block, "```")
	statement, rest, _ := strings.Cut(block, ";")
	require.Empty(t, strings.TrimSpace(rest), "one statement")
	return strings.TrimSpace(statement)
}
