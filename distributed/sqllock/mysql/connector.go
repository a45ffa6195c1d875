package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"github.com/wllock/wllock/internal/passfile"
	"github.com/wllock/wllock/internal/tlsfile"
)

// connector makes each connection with the settings, and the password, of now.
type connector struct {
	config       *mysql.Config
	passwordFile string // "": the password is the URL's
	files        tlsfile.Files
	log          *driverLog
}

const passwordParameter = "password-file"

// takePasswordFile takes our parameter out of those of a URL, and leaves the driver's as they are: it does not decode all of them.
func (c *connector) takePasswordFile(u *url.URL) (rest string, err error) {
	var others []string
	for one := range strings.SplitSeq(u.RawQuery, "&") {
		value, ours := strings.CutPrefix(one, passwordParameter+"=")
		if !ours {
			others = append(others, one)
			continue
		}
		if c.passwordFile, err = url.QueryUnescape(value); err != nil {
			return "", errURL
		}
		if _, both := u.User.Password(); both || u.User.Username() == "" || c.passwordFile == "" {
			return "", errors.New("mysql: the parameter " + passwordParameter + " wants a path, a user in the URL, and no password there")
		}
	}
	return strings.Trim(strings.Join(others, "&"), "&"), nil
}

// bounded adds bounds to the sessions, where the URL has none.
func (c *connector) bounded() *connector {
	for name, value := range bounds {
		if _, is := c.config.Params[name]; !is {
			c.config.Params[name] = value
		}
	}
	return c
}

func (c *connector) open() *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(idleTime)
	db.SetConnMaxLifetime(lifetime)
	return db
}

// Connect implements driver.Connector. It bounds the whole making of a connection. The driver bounds the dial alone, and database/sql
// makes those that are waited for on one goroutine, on a context without an end. A server that accepts and says nothing would keep the
// pool from ever making another.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	config, said := c.config.Clone(), &words{log: c.log}
	config.Logger = said
	if c.passwordFile != "" {
		var err error
		if config.Passwd, err = passfile.Read(c.passwordFile); err != nil {
			return nil, fmt.Errorf("mysql: the parameter %s: %w", passwordParameter, err)
		}
	}
	if c.files != (tlsfile.Files{}) {
		host, _, err := net.SplitHostPort(config.Addr)
		if err == nil {
			config.TLS, err = c.files.Config(host)
		}
		if err != nil {
			return nil, fmt.Errorf("mysql: %w", err)
		}
	}
	one, err := mysql.NewConnector(config)
	if err != nil {
		return nil, errURL
	}
	conn, err := one.Connect(ctx)
	return conn, said.made(err)
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.log }

// driverLog is the driver, and where its log goes: nowhere, until a Backend names a logger. Of several Backends the last one's counts.
type driverLog struct {
	mysql.MySQLDriver
	to atomic.Pointer[slog.Logger]
}

// LogTo is called by sqllock.New.
func (l *driverLog) LogTo(log *slog.Logger) { l.to.Store(log) }

// words are the log of one connection, which the driver would write to the standard error. The cause of one that was not made is there
// alone, so it is moved to the error.
type words struct {
	log    *driverLog
	mu     sync.Mutex
	isMade bool     // guarded by mu
	before []string // guarded by mu; what was said until it was made, or not
}

// Print implements mysql.Logger.
func (w *words) Print(v ...any) {
	text := strings.TrimSpace(fmt.Sprintln(v...))
	w.mu.Lock()
	if !w.isMade {
		w.before = append(w.before, text)
	}
	is := w.isMade
	w.mu.Unlock()
	if log := w.log.to.Load(); is && log != nil {
		log.Warn("sqllock: the driver says", "text", text)
	}
}

// made returns the error of a connection with its cause.
func (w *words) made(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isMade = true
	if err != nil && len(w.before) > 0 {
		return fmt.Errorf("%w: %s", err, strings.Join(w.before, "; "))
	}
	return err
}
