package postgres_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
)

// serve has a fake server handle connections until the test ends.
func serve(t *testing.T, handle func(client net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = client.Close() }()
				handle(client)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return l.Addr().String()
}

// message reads a message whose length comes after so many bytes. Without one it is nil.
func message(client net.Conn, head int) []byte {
	b := make([]byte, head+4)
	if _, err := io.ReadFull(client, b); err != nil {
		return nil
	}
	b = append(b, make([]byte, binary.BigEndian.Uint32(b[head:])-4)...)
	if _, err := io.ReadFull(client, b[head+4:]); err != nil {
		return nil
	}
	return b
}

// passOn passes a connection on to a server, and refuses parameters as poolers do: all but those that it knows.
func passOn(client net.Conn, server, refusal string) {
	startup := message(client, 0)
	if bytes.Contains(startup, []byte("\x00jit\x00")) {
		fields := "SFATAL\x00VFATAL\x00" + refusal + "\x00\x00"
		_, _ = client.Write(append(binary.BigEndian.AppendUint32([]byte("E"), uint32(4+len(fields))), fields...))
		return
	}
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer func() { _ = upstream.Close() }()
	if _, err = upstream.Write(startup); err != nil {
		return
	}
	go func() { _, _ = io.Copy(upstream, client); _ = upstream.Close() }()
	_, _ = io.Copy(client, upstream)
}

// Behind a pooler that keeps no sessions nothing is prepared; at a server statements are, and nothing is compiled. A lock works with both.
func TestPoolerIsRecognized(t *testing.T) {
	t.Parallel()
	s := dbtest.SharedPostgres(t)
	pooler := func(refusal string) (addr string) {
		return serve(t, func(client net.Conn) { passOn(client, s.Addr, refusal) })
	}
	for addr, want := range map[string]struct {
		prepared bool
		jit      string
	}{
		s.Addr: {true, "off"},
		pooler("C08P01\x00Munsupported startup parameter: jit"):                                         {false, "on"},
		pooler("C0A000\x00MFeature not supported: RDS Proxy currently doesn’t support the option jit."): {false, "on"},
	} {
		url := strings.Replace(s.URLAt(addr), "postgres:", "postgresql:", 1) // the other scheme
		db, err := postgres.OpenDB(url)
		require.NoError(t, err)
		var jit string
		require.NoError(t, db.QueryRow("SELECT current_setting('jit') WHERE $1 = 1", 1).Scan(&jit))
		require.Equal(t, want.jit, jit)
		var prepared int
		require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM pg_prepared_statements").Scan(&prepared))
		require.Equal(t, want.prepared, prepared > 0)
		require.NoError(t, db.Close())

		require.NoError(t, postgres.Migrate(t.Context(), url))
		b, err := postgres.Open(url, sqllock.WithNotifier(nil))
		require.NoError(t, err)
		testlocker.Release(t, testlocker.Asker{T: t, B: b, Key: "k", TTL: time.Minute}.Lease("a"))
		require.NoError(t, b.Close())
	}
}

// The encoding is that of names, whatever the role's is.
func TestNamesAreSentAsUTF8(t *testing.T) {
	t.Setenv("PGCLIENTENCODING", "LATIN1")
	db, err := postgres.OpenDB(dbtest.SharedPostgres(t).URL())
	require.NoError(t, err)
	var encoding string
	require.NoError(t, db.QueryRow("SHOW client_encoding").Scan(&encoding))
	require.Equal(t, "UTF8", encoding)
	require.NoError(t, db.Close())
}

// asking is a server that asks for a password, tells it, and hangs up.
func asking(t *testing.T) (addr string, told chan string) {
	t.Helper()
	told = make(chan string, 100)
	return serve(t, func(client net.Conn) {
		message(client, 0)
		_, _ = client.Write([]byte{'R', 0, 0, 0, 8, 0, 0, 0, 3}) // in clear text
		if answer := message(client, 1); answer != nil {
			told <- strings.TrimRight(string(answer[5:]), "\x00")
		}
	}), told
}

// The password is in a file, and read again for each connection: of the pool, and of the Notifier.
func TestPasswordFile(t *testing.T) {
	t.Parallel()
	addr, told := asking(t)
	file := filepath.Join(t.TempDir(), "pgpass")
	write := func(password string) {
		require.NoError(t, os.WriteFile(file, []byte("*:*:*:*:"+password+"\n"), 0o600))
	}
	write("before")
	u := "postgres://user@" + addr + "/db?sslmode=disable&passfile=" + url.QueryEscape(file)
	db, err := postgres.OpenDB(u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	n, err := postgres.NewNotifier(u)
	require.NoError(t, err)
	for _, password := range []string{"before", "after"} {
		write(password)
		require.Error(t, db.PingContext(t.Context()))
		require.Equal(t, password, <-told)
		for len(told) > 0 { // the pool's further tries
			<-told
		}
		ctx, cancel := context.WithCancel(t.Context())
		var once sync.WaitGroup
		once.Go(func() { n.Listen(ctx, "c", func(string) {}, func(bool) { cancel() }) })
		require.Equal(t, password, <-told)
		once.Wait()
		cancel()
	}
}
