package sqllock

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

// Ping needs each right on each table that a lock needs: without one it says so, and a lock would be refused later.
func TestPingNeedsTheRightsOfALock(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		for table, rights := range map[string][]string{
			"": {""}, "locks": {"SELECT", "INSERT", "UPDATE"}, "meta": {"SELECT", "INSERT", "UPDATE"},
			"waiters": {"SELECT", "INSERT", "UPDATE", "DELETE"},
		} {
			for _, right := range rights {
				err := d.over(connectorOf(accountWithout(t, d, table, right))).backend(t).Ping(t.Context())
				if right != "" {
					require.ErrorIs(t, err, distributed.ErrRefused, "%s on %s", right, table)
				} else {
					require.NoError(t, err)
				}
			}
		}
	})
}

var accounts atomic.Int64

// accountWithout returns the URL of an account that lacks a right, if one is named, of those that sqllock asks for.
func accountWithout(t *testing.T, d *database, table, right string) string {
	t.Helper()
	user := fmt.Sprint("user", accounts.Add(1))
	account, create, drop := user, "CREATE ROLE %s LOGIN PASSWORD 'x'", "DROP OWNED BY %[1]s; DROP ROLE %[1]s"
	if d.dialect == MySQL {
		account, create, drop = user+"@'127.0.0.1'", "CREATE USER %s IDENTIFIED BY 'x'", "DROP USER %s"
	}
	script := []string{fmt.Sprintf(create, account)}
	for _, one := range []string{"locks", "waiters", "meta"} {
		var has []string
		for _, r := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
			if one != table || r != right {
				has = append(has, r)
			}
		}
		script = append(script, fmt.Sprintf("GRANT %s ON wllock_%s TO %s", strings.Join(has, ", "), one, account))
	}
	d.server.Exec(strings.Join(script, "; "))
	t.Cleanup(func() { d.server.Exec(fmt.Sprintf(drop, account)) })
	return d.server.URLFor(d.server.Addr, user, "x")
}
