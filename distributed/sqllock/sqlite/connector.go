package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"modernc.org/sqlite"
)

// connector opens a file with a driver of our own, so that it does not matter what else is registered under the driver's name.
type connector struct {
	path   string   // absolute
	dsn    string   // what the driver calls it
	tables []string // the statements that create them; nil: they have to be there
}

// Connect implements driver.Connector. Its errors name the file, which SQLite's do not.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	one, err := c.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.path, err)
	}
	return one, nil
}

// connect opens a connection that knows its files. Another file may get the path just before or just after it is opened. So the file has
// to be the same before and after: if it is not, or was not there, database/sql connects anew.
func (c connector) connect(ctx context.Context) (*conn, error) {
	before, _ := os.Stat(c.path)
	opened, err := c.Driver().Open(c.dsn)
	if err != nil {
		return nil, err
	}
	one := &conn{driverConn: opened.(driverConn), path: c.path}
	if err = c.create(ctx, one); err == nil {
		one.files, err = filesOf(c.path)
	}
	if err == nil && (before == nil || !os.SameFile(before, one.files.main)) {
		err = driver.ErrBadConn
	}
	if err != nil {
		return nil, errors.Join(err, one.Close())
	}
	return one, nil
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

// files are those in which processes meet: the file itself, and the index of its log, which has the locks. They are never opened here: to
// close a file ends all locks of the process on it.
type files struct{ main, index fs.FileInfo } // index: nil without a log

func filesOf(path string) (f files, err error) {
	if f.main, err = os.Stat(path); err != nil {
		return f, err
	}
	if f.index, err = os.Stat(path + "-shm"); errors.Is(err, fs.ErrNotExist) {
		f.index, err = nil, nil
	}
	return f, err
}

func (f files) same(as files) bool {
	return os.SameFile(f.main, as.main) && (f.index == nil) == (as.index == nil) && (f.index == nil || os.SameFile(f.index, as.index))
}
