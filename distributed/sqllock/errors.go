package sqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// effect says what an error tells of the statement.
type effect uint8

const (
	lost      effect = iota // no answer: it was carried out or not
	collided                // rolled back in favour of others: try again
	refused                 // answered: the database will not do it
	unreached               // there was no connection
	crowded                 // there was none, because others have them all: soon one is free
	missing                 // refused, because the tables are not there
	unable                  // refused, because the server only reads, or serves nothing now: the name may lead to another one
)

// code returns what the database calls the error; "": it is not the database's. Drivers are recognized by small interfaces and texts,
// since none is imported:
//
//   - pgx and lib/pq: SQLState() string
//   - go-sql-driver/mysql: the text "Error 1213 (40001): ...", for it has the number in a field
//   - modernc.org/sqlite: Code() int, the extended result code; mattn/go-sqlite3 and others: SQLite's own texts
func code(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	if m := mysqlError.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	var numbered interface{ Code() int }
	if errors.As(err, &numbered) {
		return fmt.Sprintf("sqlite%d", numbered.Code()&0xff) // without the extension
	}
	for text, is := range sqliteTexts {
		if strings.Contains(err.Error(), text) {
			return is
		}
	}
	return ""
}

var mysqlError = regexp.MustCompile(`\bError (\d{4})\b`)

var sqliteTexts = map[string]string{
	"database is locked": "sqlite5", "database table is locked": "sqlite6", "attempt to write a readonly database": "sqlite8",
	"database or disk is full": "sqlite13", "no such table": "sqlite1", "unable to open database file": "sqlite14",
}

// kinds are those of the codes that are not refusals.
var effects = map[string]effect{
	"40001": collided, "40P01": collided, "55P03": collided, // serialization failure, deadlock, lock not available
	"1205": collided, "1213": collided, // lock wait timeout, deadlock
	"3101": collided,                                                                 // group replication has rolled back
	"1020": collided,                                                                 // MariaDB: the row has changed since the snapshot
	"1412": collided, "sqlite5": collided, "sqlite6": collided, "sqlite17": collided, // table definition changed; busy, locked, schema
	"53300": crowded, "1040": crowded, "1203": crowded, // too many connections
	"1226": crowded, "1461": crowded, // the account has too many; too many statements are prepared
	"57P03": unreached,                                         // starting up
	"57P01": lost, "57P02": lost, "57P05": lost, "57014": lost, // shut down, crashed, idle; cancelled because our time has ended
	"25P03": lost, "25P04": lost, "4031": lost, // stood still in a transaction, or it was too long; stood still
	"1053": lost, "1317": lost, "1927": lost, "3024": lost, "1969": lost, "sqlite9": lost, // shut down, interrupted
	"42P01": missing, "3F000": missing, "1146": missing, "1049": missing, // undefined table, schema; no such table, database
	// A transaction that only reads, or a standby; read_only, transaction_read_only, innodb_read_only; a file that was moved, too.
	"25006": unable, "1290": unable, "1792": unable, "1836": unable, "1874": unable, "1036": unable, "sqlite8": unable,
	"1047": unable, "3032": unable, "9001": unable, // a node of Galera that left its cluster; offline_mode; ProxySQL reaches no server
}

func effectOf(err error) effect {
	if errors.Is(err, errNoTables) {
		return missing
	}
	if errors.Is(err, errSession) {
		return refused
	}
	if errors.Is(err, errQueueFull) {
		return collided
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return unreached
	}
	if errors.Is(err, sql.ErrConnDone) || errors.Is(err, driver.ErrBadConn) || isTimeout(err) {
		return lost
	}
	c := code(err)
	k, known := effects[c]
	switch {
	case c == "":
		return lost
	case c == "sqlite1" && strings.Contains(err.Error(), "no such table"):
		return missing
	case known:
		return k
	case strings.HasPrefix(c, "08"):
		return lost
	}
	return refused
}

// mayHaveMoved reports that the server only reads, or serves nothing now, so that the name may lead to another one. Errors after which a
// driver closes the connection by itself need no more.
func mayHaveMoved(err error) bool { return effectOf(err) == unable || code(err) == "57P03" }

func isTimeout(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// errPooled says what a pooler needs that does not keep a session to a connection.
var errPooled = keyless.Errorf("the pooler in between lets connections share sessions: open the database with default_query_exec_mode=exec")

// pooledCodes: a prepared statement exists already, or does not exist.
var pooledCodes = map[string]bool{"42P05": true, "26000": true}

var errNoTables = keyless.Errorf("the tables are missing or incomplete: run wllock migrate, sqllock.Migrate, or the statements of sqllock.DDL")

// explain wraps the error of a statement.
func explain(what string, err error) error {
	if err == nil || errors.Is(err, distributed.ErrUnavailable) {
		return err
	}
	if c := code(err); c != "" { // a database may name the row
		err = keyless.Known(err, "error "+c)
	}
	switch effectOf(err) {
	case missing:
		if !errors.Is(err, errNoTables) { // which we have found out ourselves
			err = keyless.Errorf("%w: %w", errNoTables, err)
		}
		return distributed.Unavailable("sqllock: "+what, err, distributed.ErrRefused)
	case refused, collided, unable:
		if pooledCodes[code(err)] {
			err = keyless.Errorf("%w: %w", errPooled, err)
		}
		return distributed.Unavailable("sqllock: "+what, err, distributed.ErrRefused)
	case unreached, crowded:
		return distributed.Unavailable("sqllock: "+what, err, distributed.ErrUnreached)
	}
	return distributed.Unavailable("sqllock: "+what, err)
}

const (
	firstPause = time.Millisecond
	// longestPause is that of a file that another process has locked, or of rows that many want.
	longestPause = 40 * time.Millisecond
	// crowdPause is the longest pause where the server has no connection left: each try costs it one that it refuses.
	crowdPause = 400 * time.Millisecond
	// lostTries is how often a request without an answer is sent: its attempt is the same, so it has one effect.
	lostTries = 5
)

// retrying repeats what has collided with others, or found no connection because others had them all, until ctx ends; and what was not
// answered a few times.
func retrying(ctx context.Context, try func() error) error {
	pause, longest, losses := firstPause, longestPause, 0
	for {
		err := try()
		if err == nil || ctx.Err() != nil {
			return err
		}
		switch effectOf(err) {
		case collided:
		case crowded:
			longest = crowdPause
		case lost:
			if losses++; losses == lostTries {
				return err
			}
		default:
			return err
		}
		if !sleep(ctx, rand.N(pause)) {
			return err
		}
		pause = min(2*pause, longest)
	}
}

// sleep reports false if ctx has ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
