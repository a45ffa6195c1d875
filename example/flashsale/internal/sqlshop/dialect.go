package sqlshop

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"modernc.org/sqlite" // and the driver "sqlite"
)

// dialect is what differs between the databases.
type dialect struct {
	name, driver string
	dsn          func(url string) (string, error) // what the driver calls the database
	orderID      string                           // definition of a column that numbers the orders
	numbered     bool                             // parameters are $1, $2 and not ?
	forUpdate    string                           // ends a SELECT that locks the row
	returning    bool                             // knows UPDATE ... RETURNING
	transient    func(error) bool
	programs     []string // that the server may be; nil: there is none
}

var dialects = map[string]*dialect{
	"sqlite": {
		name: "SQLite", driver: "sqlite", dsn: sqliteDSN, orderID: "INTEGER PRIMARY KEY", returning: true, transient: busySQLite,
		// no FOR UPDATE: a transaction that begins IMMEDIATE locks the whole file
	},
	"mysql": {
		name: "MySQL", driver: "mysql", dsn: mysqlDSN, orderID: "BIGINT AUTO_INCREMENT PRIMARY KEY", forUpdate: " FOR UPDATE",
		transient: busyMySQL, programs: []string{"mariadbd", "mysqld"},
	},
	"postgres": {
		name: "PostgreSQL", driver: "pgx", dsn: postgresDSN, orderID: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
		numbered: true, forUpdate: " FOR UPDATE", returning: true, transient: busyPostgres,
		programs: []string{"postgres"},
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

// The errors after which the same transaction may be tried again: the database has rolled it back because of another one. Those of servers
// are told without the types of their drivers, which not every program links.

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
	return slices.ContainsFunc([]string{"1020", "1205", "1213"}, func(code string) bool {
		return err != nil && strings.Contains(err.Error(), "Error "+code+" (")
	})
}

// 40001: serialization failure; 40P01: deadlock; 55P03: lock not available.
func busyPostgres(err error) bool {
	var e interface{ SQLState() string }
	return errors.As(err, &e) && slices.Contains([]string{"40001", "40P01", "55P03"}, e.SQLState())
}
