package sqllock_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
)

// childVariable makes the test binary play one part of a test as a process of its own: "role where key TTL".
const childVariable = "WLLOCK_TEST_CHILD"

func init() {
	if part := strings.Fields(os.Getenv(childVariable)); len(part) == 4 {
		map[string]func(where, key string, ttl time.Duration){"hold": holdInChild, "permit": permitInChild, "block": blockInChild}[part[0]](part[1], part[2], duration(part[3]))
		os.Exit(0)
	}
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	noError(err)
	return d
}

func noError(err error) {
	if err != nil {
		panic(err)
	}
}

// where names a database for a child.
func (d database) where() string {
	if d.server == nil {
		return d.file
	}
	return d.server.URL()
}

func openChild(where string) (*sql.DB, sqllock.Dialect) {
	switch {
	case strings.HasPrefix(where, "postgres:"):
		return sql.OpenDB(connectorOf(where)), sqllock.PostgreSQL
	case strings.HasPrefix(where, "mysql:"):
		return sql.OpenDB(connectorOf(where)), sqllock.MySQL
	}
	return sql.OpenDB(sqliteFile(where)), sqllock.SQLite
}

// holdInChild takes the lock and says what becomes of it, line by line. For each line of its input it makes a write that
// is checked by its fence, as a store should.
func holdInChild(where, key string, ttl time.Duration) {
	holdAs(where, distributed.Request{Key: key, TTL: ttl})
}

// permitInChild is holdInChild for one of two permits.
func permitInChild(where, key string, ttl time.Duration) {
	holdAs(where, distributed.Request{Key: key, TTL: ttl, Mode: distributed.Shared, Limit: 2})
}

func holdAs(where string, req distributed.Request) {
	db, d := openChild(where)
	b, err := sqllock.New(db, d)
	noError(err)
	req.Instance = fmt.Sprint("child", os.Getpid())
	l, p, err := b.Enter(context.Background(), req)
	noError(err)
	if p != nil {
		fmt.Println("queued")
		l = <-p.Granted()
	}
	n, _ := l.NextFence()
	fmt.Println("held", n)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println("wrote", fencedWrite(context.Background(), db, req.Key, n), "lost", !l.Healthy())
	}
}

// stock is a table of an application that checks fences.
const stock = "CREATE TABLE stock (id varchar(100) PRIMARY KEY, fence bigint NOT NULL)"

func newStock(t *testing.T, d database, key string) *sql.DB {
	t.Helper()
	db := d.pool(t, nil)
	for _, text := range []string{stock, "INSERT INTO stock VALUES ('" + key + "', 0)"} {
		_, err := db.Exec(text)
		require.NoError(t, err)
	}
	return db
}

// fencedWrite writes as the holder of a fence, and returns how many rows it has changed: 1, or 0 if it was refused.
func fencedWrite(ctx context.Context, db *sql.DB, id string, fence uint64) int64 {
	r, err := db.ExecContext(ctx, fmt.Sprintf("UPDATE stock SET fence = %[2]d WHERE id = '%[1]s' AND fence < %[2]d", id, fence))
	noError(err)
	n, err := r.RowsAffected()
	noError(err)
	return n
}

// blockInChild locks a file of SQLite for that time.
func blockInChild(where, _ string, d time.Duration) {
	db, _ := openChild(where)
	c, err := db.Conn(context.Background())
	noError(err)
	for {
		if _, err = c.ExecContext(context.Background(), "BEGIN EXCLUSIVE"); err == nil {
			break
		}
	}
	fmt.Println("locked")
	time.Sleep(d)
	_, err = c.ExecContext(context.Background(), "COMMIT")
	noError(err)
	fmt.Println("unlocked")
}

// child is such a process.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Writer
	lines *bufio.Scanner
}

func startChild(t *testing.T, role, where, key string, d time.Duration) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %v", childVariable, role, where, key, d))
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	c.in, c.lines = in, bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

// says waits for the next line and returns what follows the word it must begin with.
func (c *child) says(word string) string {
	c.t.Helper()
	require.True(c.t, c.lines.Scan(), "the child has ended; want it to say %q", word)
	rest, ok := strings.CutPrefix(c.lines.Text(), word)
	require.True(c.t, ok, "the child says %q; want %q", c.lines.Text(), word)
	return strings.TrimSpace(rest)
}

func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) }

func (c *child) tell(line string) {
	c.t.Helper()
	_, err := io.WriteString(c.in, line+"\n")
	require.NoError(c.t, err)
}
