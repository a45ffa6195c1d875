package sqllock_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/sqllock"
)

// The queries of docs/sql.md run, and show the holder and the waiter.
func TestQueriesOfTheGuideRun(t *testing.T) {
	onEach(t, true, func(t *testing.T, d database) {
		b, key := d.backend(t, nil), newName("k")
		r := request(key, safely)
		l := acquired(t, b, r)
		p := place(t, b, request(key, safely))
		heading := map[sqllock.Dialect]string{sqllock.PostgreSQL: "\nPostgreSQL:\n", sqllock.MySQL: "\nMySQL and MariaDB", sqllock.SQLite: "\nSQLite:\n"}[d.dialect]
		for _, query := range queriesAfter(t, heading) {
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
		release(t, l)
		release(t, granted(t, p))
	})
}

// queriesAfter returns the statements of the first block of SQL after a heading.
func queriesAfter(t *testing.T, heading string) (queries []string) {
	t.Helper()
	guide, err := os.ReadFile("../../docs/sql.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(guide), heading)
	require.True(t, found, heading)
	_, block, _ := strings.Cut(after, "```sql\n")
	block, _, _ = strings.Cut(block, "```")
	for query := range strings.SplitSeq(block, ";") {
		if query = strings.TrimSpace(query); query != "" {
			queries = append(queries, query)
		}
	}
	require.Len(t, queries, 2)
	return queries
}
