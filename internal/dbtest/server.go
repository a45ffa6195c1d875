package dbtest

import (
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/internal/testproc"
)

// TB is the part of a testing.TB that this package needs.
type TB = testproc.TB

const (
	// Ports lie below the range that Linux uses for outgoing connections, and apart from those of ZooKeeper.
	firstPort, lastPort = 20000, 32000
	// patience is longer than a start on a busy machine takes, with recovery after a Kill.
	patience = 60 * time.Second
	// The account of tests may do everything. Its password is not asked for by PostgreSQL, which trusts loopback.
	account, password = "wllock", "secret"
)

// Server is a database on a running server.
type Server struct {
	*testproc.Server
	// Database is what URL names.
	Database string

	product product
	opts    options
	t       TB
}

// product is what PostgreSQL and MariaDB do differently.
type product interface {
	scheme() string
	query() string // of the URL
	// client returns what executes a script in a database.
	client(port int, database, script string) testproc.Command
}

// Option changes how a server is started.
type Option func(*options)

type options struct {
	settings []string // name=value
	noSync   bool
	clock    *testproc.Clock
}

// Set sets a server variable, such as max_connections.
func Set(name, value string) Option {
	return func(o *options) { o.settings = append(o.settings, name+"="+value) }
}

// NoSync has the server leave its files to the operating system: commits are faster, and outlive a killed server, not a
// crash of the machine.
func NoSync() Option { return func(o *options) { o.noSync = true } }

// Clock has the server's wall clock be that one.
func Clock(c *testproc.Clock) Option { return func(o *options) { o.clock = c } }

// env is added to the environment of the server.
func (o *options) env() []string {
	if o.clock == nil {
		return nil
	}
	return o.clock.Env
}

func newOptions(opts []Option) options {
	var o options
	for _, set := range opts {
		set(&o)
	}
	return o
}

// URL returns postgres://user:password@host:port/database or mysql://..., for all rights.
func (s *Server) URL() string { return s.URLAt(s.Addr) }

// URLAt is URL for another address, which is a proxy's.
func (s *Server) URLAt(addr string) string {
	return s.URLFor(addr, account, password)
}

// URLFor is URLAt for another account.
func (s *Server) URLFor(addr, user, password string) string {
	u := url.URL{
		Scheme: s.product.scheme(), User: url.UserPassword(user, password), Host: addr, Path: "/" + s.Database, RawQuery: s.product.query(),
	}
	return u.String()
}

// Exec executes statements with the server's own command line client and returns the rows it prints, tab by tab. They may
// say what a driver's connection cannot, or while none may be open.
func (s *Server) Exec(script string) string {
	s.t.Helper()
	out, err := s.try(script)
	if err != nil {
		s.t.Fatalf("%s: %v", script, err)
	}
	return out
}

func (s *Server) try(script string) (string, error) {
	c := s.product.client(s.Port, s.Database, script)
	c.Dir = s.Dir
	out, err := c.Output()
	return strings.TrimSuffix(out, "\n"), err
}

var databases atomic.Int64

// NewDatabase creates a database that no other test uses, dropped with the test.
func (s *Server) NewDatabase(t TB) *Server {
	t.Helper()
	fresh := *s
	fresh.t, fresh.Database = t, fmt.Sprintf("test%d", databases.Add(1))
	if _, err := s.try("CREATE DATABASE " + fresh.Database); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _, _ = s.try(drop(s.product, fresh.Database)) })
	return &fresh
}

func drop(k product, database string) string {
	statement := "DROP DATABASE IF EXISTS " + database
	if k == product(postgres{}) {
		return statement + " WITH (FORCE)" // a connection that a test has leaked does not keep it
	}
	return statement
}

// copyTree copies a folder. cp keeps owners and knows how to share blocks.
func copyTree(from, to string) error {
	out, err := exec.Command("cp", "-a", "--reflink=auto", from, to).CombinedOutput()
	if err != nil { // not GNU
		out, err = exec.Command("cp", "-Rp", from, to).CombinedOutput()
	}
	if err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return nil
}

// install makes the data folder of a server from the template of this test binary, which is made first if there is none.
func install(dir, name, user string, create func(dir string) error) error {
	data := filepath.Join(dir, "data")
	template, err := templates.get(name, user, create)
	if err != nil {
		return err
	}
	if template == "" {
		return create(data)
	}
	return copyTree(template, data)
}
