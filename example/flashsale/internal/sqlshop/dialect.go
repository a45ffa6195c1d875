package sqlshop

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
)

// dialect is what differs between the databases.
type dialect struct {
	name      string
	connector func(url string) (driver.Connector, error)
	orderID   string // definition of a column that numbers the orders
	numbered  bool   // parameters are $1, $2 and not ?
	forUpdate string // ends a SELECT that locks the row
	returning bool   // knows UPDATE ... RETURNING
	transient func(error) bool
	serverPID func(context.Context, *Shop) (int, error) // nil: there is no server
	programs  []string                                  // that the server may be
}

var dialects = map[string]*dialect{
	"sqlite": {
		name: "SQLite", connector: sqliteConnector, orderID: "INTEGER PRIMARY KEY", returning: true, transient: busySQLite,
		// no FOR UPDATE: a transaction that begins IMMEDIATE locks the whole file
	},
	"mysql": {
		name: "MySQL", connector: mysqlConnector, orderID: "BIGINT AUTO_INCREMENT PRIMARY KEY", forUpdate: " FOR UPDATE",
		transient: busyMySQL, serverPID: mysqld, programs: []string{"mariadbd", "mysqld"},
	},
	"postgres": {
		name: "PostgreSQL", connector: postgresConnector, orderID: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
		numbered: true, forUpdate: " FOR UPDATE", returning: true, transient: busyPostgres,
		serverPID: postmaster, programs: []string{"postgres"},
	},
}

// sql writes a query in the dialect. All queries here have ? for parameters, and nowhere else.
func (d *dialect) sql(query string) string {
	if !d.numbered {
		return query
	}
	var b strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

// The errors after which the same transaction may be tried again: the database has rolled it back because of another one.

const (
	sqliteBusy   = 5 // SQLITE_BUSY: somebody else writes
	sqliteLocked = 6 // SQLITE_LOCKED: the same, within a process
	primaryCode  = 0xff
)

func busySQLite(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && slices.Contains([]int{sqliteBusy, sqliteLocked}, e.Code()&primaryCode)
}

// 1020: the record has changed since it was read (MariaDB, snapshot isolation); 1205: lock wait time-out; 1213: deadlock.
func busyMySQL(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains([]uint16{1020, 1205, 1213}, e.Number)
}

// 40001: serialization failure; 40P01: deadlock; 55P03: lock not available.
func busyPostgres(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains([]string{"40001", "40P01", "55P03"}, e.Code)
}
