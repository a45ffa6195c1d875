package sqlshop

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// dialect is what differs between the databases.
type dialect struct {
	name      string
	orderID   string   // definition of a column that numbers the orders
	numbered  bool     // parameters are $1, $2 and not ?
	forUpdate string   // ends a SELECT that locks the row
	returning bool     // knows UPDATE ... RETURNING
	busy      []string // codes of errors after which the same transaction may be tried again: another one was in its way
	programs  []string // that the server may be; nil: there is none
}

var dialects = map[string]*dialect{
	"sqlite": {
		name: "SQLite", orderID: "INTEGER PRIMARY KEY", returning: true,
		busy: []string{"5", "6"}, // somebody else writes: another process, or this one
		// no FOR UPDATE: a transaction that begins IMMEDIATE locks the whole file
	},
	"mysql": {
		name: "MySQL", orderID: "BIGINT AUTO_INCREMENT PRIMARY KEY", forUpdate: " FOR UPDATE",
		busy:     []string{"1020", "1205", "1213"}, // changed since it was read (MariaDB, snapshot isolation); lock wait time-out; deadlock
		programs: []string{"mariadbd", "mysqld"},
	},
	"postgres": {
		name: "PostgreSQL", orderID: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
		numbered: true, forUpdate: " FOR UPDATE", returning: true,
		busy:     []string{"40001", "40P01", "55P03"}, // serialization failure; deadlock; lock not available
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

// transient reports whether the database has rolled a transaction back because of another one.
func (d *dialect) transient(err error) bool {
	return err != nil && slices.Contains(d.busy, codeOf(err))
}

// codeOf is the database's code of an error. It knows no type of a driver, because not every program links all.
func codeOf(err error) string {
	var sqlite interface{ Code() int }
	var postgres interface{ SQLState() string }
	switch {
	case errors.As(err, &sqlite):
		return strconv.Itoa(sqlite.Code() & 0xff) // the rest says more about the same
	case errors.As(err, &postgres):
		return postgres.SQLState()
	}
	_, text, _ := strings.Cut(err.Error(), "Error ") // MySQL: Error 1213 (40001): Deadlock found
	code, _, _ := strings.Cut(text, " ")
	return code
}
