package sqllock_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
)

// Ping needs each right on each table that a lock needs: without one it says so, and a lock would be refused later.
func TestPingNeedsTheRightsOfALock(t *testing.T) {
	shares := dialects(true)
	delete(shares, "sqlite")
	together(t, shares, func(t *testing.T, start starter) {
		d := start(t)
		for table, rights := range map[string][]string{
			"": {""}, "locks": {"SELECT", "INSERT", "UPDATE"}, "waiters": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "meta": {"SELECT", "INSERT", "UPDATE"},
		} {
			for _, right := range rights {
				b := pingWithout(t, d, table, right)
				if err := b.Ping(t.Context()); right != "" {
					require.ErrorIs(t, err, distributed.ErrRefused, "%s on %s", right, table)
				} else {
					require.NoError(t, err)
				}
			}
		}
	})
}

// pingWithout returns a Backend of an account that lacks a right.
func pingWithout(t *testing.T, d database, table, right string) *sqllock.Backend {
	t.Helper()
	user := strings.ReplaceAll(newName("u"), "-", "_")
	account, create, drop := user, "CREATE ROLE %s LOGIN PASSWORD 'x'", "DROP OWNED BY %[1]s; DROP ROLE %[1]s"
	if d.dialect == sqllock.MySQL {
		account, create, drop = user+"@'127.0.0.1'", "CREATE USER %s IDENTIFIED BY 'x'", "DROP USER %s"
	}
	var script strings.Builder
	script.WriteString(fmt.Sprintf(create, account))
	for _, one := range []string{"locks", "waiters", "meta"} {
		var has []string
		for _, r := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
			if one != table || r != right {
				has = append(has, r)
			}
		}
		script.WriteString(fmt.Sprintf("; GRANT %s ON wllock_%s TO %s", strings.Join(has, ", "), one, account))
	}
	d.server.Exec(script.String())
	t.Cleanup(func() { d.server.Exec(fmt.Sprintf(drop, account)) })
	db := sql.OpenDB(connectorOf(d.server.URLFor(d.server.Addr, user, "x")))
	t.Cleanup(func() { _ = db.Close() })
	return backendOn(t, db, d.dialect)
}
