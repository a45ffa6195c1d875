package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"

	"modernc.org/sqlite"
)

// connector opens a file with a driver of our own, so that it does not matter what else is registered under the driver's name.
type connector struct {
	path   string   // absolute
	tables []string // the statements that create them; nil: they have to be there
	reads  bool     // and changes nothing on the disk
}

// Connect implements driver.Connector. Its errors name the file, which SQLite's do not.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	one, err := c.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.path, err)
	}
	return one, nil
}

// check says why the file cannot be used, and opens nothing.
func (c connector) check() error {
	err := examine(c.path, !c.reads)
	if err == nil && c.reads {
		err = shared(c.path) // to open them as root would change their owner
	}
	return err
}

// connect opens a connection that knows its files. Another file may get the path just before or just after it is opened. So the file has
// to be the same before and after: if it is not, or was not there, database/sql connects anew.
func (c connector) connect(ctx context.Context) (*conn, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	before, _ := filesOf(c.path)
	opened, err := c.Driver().Open(c.dsn(before))
	if err != nil {
		return nil, err
	}
	one := &conn{driverConn: opened.(driverConn), path: c.path}
	if err = c.create(ctx, one); err == nil {
		one.files, err = filesOf(c.path)
	}
	switch {
	case err != nil:
	case before.main == nil || !os.SameFile(before.main, one.files.main) || c.reads && !before.same(one.files):
		err = driver.ErrBadConn
	case !c.reads:
		err = shared(c.path)
	}
	if err != nil {
		return nil, errors.Join(err, one.Close())
	}
	return one, nil
}

const (
	// pragmas: with a write-ahead log readers and the writer do not wait for each other. Its last changes may be lost with the
	// power, but then all who relied on them have gone as well, and fences go on with the clock. A writer waits for another one in
	// SQLite first, which takes less than to be refused and come again.
	pragmas = "_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&" + patience
	// reading neither creates nor removes a file beside the database, whoever has it open.
	reading  = "mode=ro&readonly_shm=1&" + patience
	patience = "_pragma=busy_timeout(100)"
)

// dsn is what the driver calls the file. Nobody else has it open when it has no log: to read it, SQLite would create one. So it is told
// that nobody writes.
func (c connector) dsn(f files) string {
	query := pragmas
	if c.reads {
		query = reading
		if f.index == nil {
			query += "&immutable=1"
		}
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: c.path}).EscapedPath(), RawQuery: query}).String()
}

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return &sqlite.Driver{} }

// create creates the tables if the last statement, which fills the last table, cannot be compiled without them: all or none, whoever else
// does the same.
func (c connector) create(ctx context.Context, to *conn) error {
	if len(c.tables) == 0 {
		return nil
	}
	plan, err := to.QueryContext(ctx, "EXPLAIN "+c.tables[len(c.tables)-1], nil)
	if err == nil {
		return plan.Close()
	}
	for _, text := range append(append([]string{"BEGIN IMMEDIATE"}, c.tables...), "COMMIT") {
		if _, err := to.ExecContext(ctx, text, nil); err != nil {
			return err // the transaction ends with the connection
		}
	}
	return nil
}

// conn is what the driver's connections can do. It belongs to the files that have the path when it is opened. It has them open, so
// nothing else gets their inodes meanwhile.
type conn struct {
	driverConn
	path  string
	files files
}

type driverConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// ResetSession implements driver.SessionResetter (rule D13). database/sql calls it whenever it takes a connection that was used before:
// for each renewal, look, request and release. A statement that is under way while the files are replaced still counts, until the next
// one.
func (c *conn) ResetSession(ctx context.Context) error {
	now, err := filesOf(c.path)
	if err != nil || !c.files.same(now) {
		return driver.ErrBadConn
	}
	return c.driverConn.ResetSession(ctx)
}
