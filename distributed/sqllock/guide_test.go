package sqllock

import (
	"bytes"
	"database/sql"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/dbtest"
)

// The statements of docs/sql.md run: the queries show the holder and the waiter, and what ends a lease lets the waiter have the lock.
func TestStatementsOfTheGuideRun(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		b, key := d.backend(t), "k"
		l, p := enter(t, b, key), queue(t, b, key)
		heading := map[Dialect]string{PostgreSQL: "\nPostgreSQL:\n", MySQL: "\nMySQL and MariaDB", SQLite: "\nSQLite:\n"}[d.dialect]
		for _, query := range []string{statementAfter(t, heading), statementAfter(t, "\nAny database, who waits")} {
			rows, err := b.db.Query(query)
			require.NoError(t, err, query)
			n := 0
			for rows.Next() {
				n++
			}
			require.NoError(t, rows.Err())
			require.NoError(t, rows.Close())
			require.Equal(t, 1, n, query)
		}
		_, err := b.db.Exec(strings.ReplaceAll(statementAfter(t, "\nAny database, to end the lease"), "shop:product:1000", key))
		require.NoError(t, err)
		free(t, awaited(t, p))
		ended(t, l)
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
	c := myConfig(dbtest.SharedMariaDB(t).NewDatabase(t).URL())
	db, err := sql.Open("mysql", c.User+":"+c.Passwd+"@tcp("+c.Addr+")/"+c.DBName+"?"+params)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, Migrate(t.Context(), db, MySQL))
	var lines bytes.Buffer
	b := backendOn(t, db, MySQL, WithLogger(slog.New(slog.NewTextHandler(&lines, nil))))
	free(t, enter(t, b, "é"))
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
