package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/wllock/wllock/distributed/sqllock/mysql"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
)

// database is a server that is asked by SQL.
type database struct {
	*patient
	db *sql.DB
}

// text returns one value; "": the server does not say.
func (d database) text(ctx context.Context, query string) string {
	var value sql.NullString
	if d.db.QueryRowContext(ctx, query).Scan(&value) != nil {
		return ""
	}
	return value.String
}

// since1970 returns the time that a query for the seconds since 1970 tells.
func (d database) since1970(ctx context.Context, query string) func() (time.Time, error) {
	return func() (time.Time, error) {
		var seconds float64
		err := d.db.QueryRowContext(ctx, query).Scan(&seconds)
		return time.UnixMicro(int64(seconds * 1e6)), err
	}
}

// readOnly judges whether the server can be written to.
func (d database) readOnly(only bool) {
	d.judge(only, Error, Finding{
		Subject: "role", What: map[bool]string{true: "this server only reads", false: "the server takes writes"}[only],
		Means: "no lock can be acquired: it is a replica, or was made read-only", Mend: "use the primary's address",
	})
}

// loses judges a setting with which a crash of the server forgets what it has acknowledged.
func (d database) loses(bad bool, what, mend string) {
	d.judge(bad, Warning, Finding{
		Subject: "durability", What: what,
		Means: "after a crash of the server the last locks are forgotten: then two callers hold one", Mend: mend,
	})
}

func (d database) replicas(n string, waited bool) {
	if n == "" || n == "0" {
		d.fine("replicas", "none")
		return
	}
	d.judge(!waited, Warning, Finding{
		Subject: "replicas", What: fmt.Sprintf("%s, commits wait for one: %v", n, waited),
		Means: "a failover can forget the last locks: then two callers hold one, and only a store that checks fences tells them apart",
		Mend:  "ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf()" + hosted + "; or check fences in the store",
	})
}

func postgresServer(ctx context.Context, p *patient) {
	db, err := postgres.OpenDB(p.url.String())
	if err != nil {
		p.fail(Finding{Subject: "URL", What: err.Error()})
		return
	}
	defer func() { _ = db.Close() }()
	d := database{p, db}
	version := d.text(ctx, "SHOW server_version")
	if version == "" {
		return // access says why
	}
	p.fine("version", "PostgreSQL %s", version)
	d.readOnly(d.text(ctx, "SELECT pg_is_in_recovery()") == "true" || d.text(ctx, "SHOW default_transaction_read_only") == "on")
	for _, setting := range []string{"fsync", "synchronous_commit"} {
		value := d.text(ctx, "SHOW "+setting)
		d.loses(value == "off", setting+" "+value, "ALTER SYSTEM SET "+setting+" = on; SELECT pg_reload_conf()"+hosted)
	}
	d.replicas(d.text(ctx, "SELECT count(*) FROM pg_stat_replication"), d.text(ctx, "SHOW synchronous_standby_names") != "")
	d.clockBy(d.since1970(ctx, "SELECT extract(epoch FROM clock_timestamp())::float8"))
}

func mysqlServer(ctx context.Context, p *patient) {
	db, err := mysql.OpenDB(p.url.String())
	if err != nil {
		p.fail(Finding{Subject: "URL", What: err.Error()})
		return
	}
	defer func() { _ = db.Close() }()
	d := database{p, db}
	version := d.text(ctx, "SELECT version()")
	if version == "" {
		return // access says why
	}
	p.fine("version", "%s", version)
	d.readOnly(d.text(ctx, "SELECT @@global.read_only") == "1")
	flush := d.text(ctx, "SELECT @@global.innodb_flush_log_at_trx_commit")
	d.loses(flush != "1", "innodb_flush_log_at_trx_commit "+flush, "SET GLOBAL innodb_flush_log_at_trx_commit = 1"+hosted)
	d.clockBy(d.since1970(ctx, "SELECT unix_timestamp(now(6))"))
}
