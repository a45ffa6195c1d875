package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"maps"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// connector connects to a server, or to a pooler. One that keeps no sessions, as pgbouncer in transaction mode or RDS Proxy, cannot keep
// prepared statements either. It is known by its refusal of a parameter that every server takes, and then nothing is prepared.
type connector struct {
	server, pooler driver.Connector
	pooled         *atomic.Bool // the parameter was refused
}

// sessions are the settings that a lock relies on, whatever the role, the database or the URL say. No policy refuses a statement, or ends it:
// the Backend's own time does. A policy for rows that would hide some makes statements fail, instead. And no look at a long queue is
// compiled because its cost is above the server's limit.
var sessions = map[string]string{
	"default_transaction_read_only": "off", "statement_timeout": "0", "row_security": "off", "jit": "off",
}

func newConnector(t target) connector {
	server, pooler := t.Copy(), t.Copy()
	server.RuntimeParams = maps.Clone(t.RuntimeParams)
	maps.Copy(server.RuntimeParams, sessions)
	if pooler.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement { // the URL asks for nothing else
		pooler.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	logIn := stdlib.OptionBeforeConnect(func(_ context.Context, config *pgx.ConnConfig) error {
		t.logIn(config)
		return nil
	})
	return connector{stdlib.GetConnector(*server, logIn), stdlib.GetConnector(*pooler, logIn), new(atomic.Bool)}
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if !c.pooled.Load() {
		conn, err := c.server.Connect(ctx)
		if !isPooler(err) {
			return conn, err
		}
		c.pooled.Store(true)
	}
	return c.pooler.Connect(ctx)
}

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return c.server.Driver() }

// Codes with which poolers refuse a parameter that they do not know. No server has them for that: jit is there since 11.
const (
	protocolViolation   = "08P01" // pgbouncer
	featureNotSupported = "0A000" // RDS Proxy
)

func isPooler(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && (refused.Code == protocolViolation || refused.Code == featureNotSupported)
}
