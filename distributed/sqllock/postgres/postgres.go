// Package postgres opens a sqllock.Backend on PostgreSQL, with the driver github.com/jackc/pgx/v5, and has the Notifier that pushes
// hand-overs.
//
//	err := postgres.Migrate(ctx, "postgres://user@host/database")   // once
//	backend, err := postgres.Open("postgres://user@host/database")
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// A program that already has a *sql.DB, of any driver, passes it to sqllock.New instead.
package postgres

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/tlsfile"
)

const (
	// idleTime is how long a connection that nobody uses stays open: waiting and holding need none.
	idleTime = 30 * time.Second
	// connections is as many as a Backend uses at a time by default, so that none is opened in vain.
	connections = sqllock.DefaultParallel + sqllock.BackgroundConnections
	// dialTime bounds the making of a connection, unless the URL has a connect_timeout.
	dialTime = 2 * time.Second
	// lifetime is how long a connection is used at most: the name of the server may lead to another one meanwhile.
	lifetime = 5 * time.Minute
)

// Open returns a Backend on the database that a URL names, with hand-overs pushed by a Notifier:
//
//	postgres://user[:password]@host[:port]/database[?sslmode=...&connect_timeout=...]
//
// It also accepts postgresql://, and everything else that pgx.ParseConfig understands, so the PG* environment variables and a password file
// apply. tls_ca, tls_cert and tls_key are other names for sslrootcert, sslcert and sslkey, and mean sslmode=verify-full. tls_server_name is
// the name that the server's certificate must have, instead of the host. These files are read for each connection.
//
// Open changes the settings of its sessions as locks need them: docs/sql.md lists these settings. The application_name of its connections is
// the id of the process, unless the URL or PGAPPNAME sets another. Open does not connect. The tables must exist: see Migrate.
func Open(rawURL string, opts ...sqllock.Option) (*sqllock.Backend, error) {
	t, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	all := append([]sqllock.Option{sqllock.WithOwnedDB(), sqllock.WithNotifier(notifier{t})}, opts...)
	return sqllock.New(openDB(t), sqllock.PostgreSQL, all...)
}

// Opener returns Open with these options, for config.WithOpener.
func Opener(opts ...sqllock.Option) func(context.Context, *url.URL) (distributed.Backend, error) {
	return openurl.Opener(Open, opts)
}

// Migrate creates the tables that are missing: see sqllock.Migrate.
func Migrate(ctx context.Context, rawURL string, opts ...sqllock.Option) (err error) {
	db, err := OpenDB(rawURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return sqllock.Migrate(ctx, db, sqllock.PostgreSQL, opts...)
}

// OpenDB opens a database as Open does, for a program that also uses it for other things.
func OpenDB(rawURL string) (*sql.DB, error) {
	t, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	return openDB(t), nil
}

// target is where to connect to, and as whom.
type target struct {
	*pgx.ConnConfig
	url        string
	serverName string // of tls_server_name
}

// parse reads a URL. The error does not show the password.
func parse(rawURL string) (t target, err error) {
	text, files, err := translated(rawURL)
	if err != nil {
		return t, fmt.Errorf("postgres: %w", err)
	}
	t = target{url: text, serverName: files.ServerName}
	config, err := t.read()
	switch file, is := errors.AsType[*fs.PathError](err); {
	case is:
		return t, fmt.Errorf("postgres: a file that the URL names: %w", file)
	case err != nil:
		return t, errors.New("postgres: not the URL of a database: want postgres://user:password@host:port/database, with / ? # and @ in " +
			"a password percent-encoded")
	case config.TLSConfig == nil && files != tlsfile.Files{}:
		return t, errors.New("postgres: the parameters of TLS have no use with a unix socket")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = dialTime
	}
	if config.RuntimeParams["application_name"] == "" { // neither the URL nor PGAPPNAME names it
		config.RuntimeParams["application_name"] = identity.Process("")
	}
	config.RuntimeParams["client_encoding"] = "UTF8" // whatever the role's is: names are UTF-8
	t.ConnConfig = config
	return t, nil
}

// verifyFull is the mode of TLS that our parameters stand for: the certificate is checked, and its name.
const verifyFull = "verify-full"

// translated returns a URL with the parameters of the database's users in place of ours. The driver has none for the server's name.
func translated(rawURL string) (string, tlsfile.Files, error) {
	base, query, _ := strings.Cut(rawURL, "?")
	if !strings.Contains(base, "://") { // the driver takes other forms, too
		return rawURL, tlsfile.Files{}, nil
	}
	files, rest, err := tlsfile.Take(query, "postgres", true)
	if err != nil || files == (tlsfile.Files{}) {
		return rawURL, files, err
	}
	q, err := url.ParseQuery(rest)
	if mode := q.Get("sslmode"); mode != "" && mode != verifyFull || err != nil {
		return "", files, errors.New("the parameters of TLS want sslmode=" + verifyFull + ", or none")
	}
	q.Set("sslmode", verifyFull)
	for name, value := range map[string]string{"sslrootcert": files.CA, "sslcert": files.Cert, "sslkey": files.Key} {
		switch {
		case value != "" && q.Has(name):
			return "", files, errors.New(name + " and the tls_ parameter for the same file exclude each other")
		case value != "":
			q.Set(name, value)
		}
	}
	return base + "?" + q.Encode(), files, nil
}

// read returns what the URL, and the files that it names, say now.
func (t target) read() (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(t.url)
	if err != nil {
		return nil, err
	}
	t.adapt(config.TLSConfig)
	for _, other := range config.Fallbacks {
		t.adapt(other.TLSConfig)
	}
	return config, nil
}

// adapt changes what the driver has made of the parameters: it has none for the name, and keeps a certificate back if the server does not name
// its authority: then the server could not say what it has against it.
func (t target) adapt(c *tls.Config) {
	if c == nil {
		return
	}
	c.ServerName = cmp.Or(t.serverName, c.ServerName)
	if own := c.Certificates; len(own) > 0 {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own[0], nil }
	}
}

// logIn puts password and certificates of now into the settings of one connection: their files may have changed.
func (t target) logIn(config *pgx.ConnConfig) {
	if fresh, err := t.read(); err == nil {
		config.Password, config.TLSConfig, config.Fallbacks = fresh.Password, fresh.TLSConfig, fresh.Fallbacks
	}
}

func openDB(t target) *sql.DB {
	db := sql.OpenDB(newConnector(t))
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(idleTime)
	db.SetConnMaxLifetime(lifetime)
	return db
}
