package contender

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/wllock/wllock/benchmarks/internal/server"
)

// updated chooses the rows, so that no two callers write the same one at a time.
var updated atomic.Int64

// updates writes a row per call and locks nothing: what a statement costs whose effect the database keeps.
func updates(open func(Options) (database, error)) entry {
	return entry{"UPDATE", "one plain UPDATE by the primary key per call, each of another row; no lock", func(o Options) (Instance, error) {
		db, err := open(o)
		if err != nil {
			return Instance{}, err
		}
		return limit(func(ctx context.Context) error {
			s, err := db.acquire(ctx)
			if err != nil {
				return err
			}
			defer s.release()
			return s.send(ctx, query{text: fmt.Sprintf("UPDATE bench_rows SET n = n + 1 WHERE id = %d", updated.Add(1)%server.Rows)})
		}, db.Close), nil
	}}
}

// sqlLock is a lock that belongs to a connection or its transaction. Where its statements have %s, they are about a key.
type sqlLock struct {
	row     string // makes what take locks, once for each key; "": take needs nothing
	take    string
	asks    bool // take answers with 1 if it has the lock, and is repeated until it has
	release string
	name    func(key string) string // for the statements; nil: the key itself
}

func (l sqlLock) on(open func(Options) (database, error)) func(Options) (Instance, error) {
	return func(o Options) (Instance, error) {
		db, err := open(o)
		if err != nil {
			return Instance{}, err
		}
		var made sync.Map // keys with a row
		return lock(func(ctx context.Context, key string) (func() error, error) {
			s, err := db.acquire(ctx)
			if err != nil {
				return nil, err
			}
			if err := l.lock(ctx, s, key, &made); err != nil {
				s.release()
				return nil, err
			}
			return func() error {
				defer s.release()
				return s.send(cleanUp, l.about(l.release, key))
			}, nil
		}, db.Close), nil
	}
}

func (l sqlLock) lock(ctx context.Context, s session, key string, made *sync.Map) error {
	if _, has := made.Load(key); l.row != "" && !has {
		if err := s.send(ctx, l.about(l.row, key)); err != nil {
			return err
		}
		made.Store(key, true)
	}
	take := l.about(l.take, key)
	if !l.asks {
		return s.send(ctx, take)
	}
	for locked := int64(0); locked == 0; {
		take.read = &locked
		if err := s.send(ctx, take); err != nil {
			return err
		}
	}
	return nil
}

func (l sqlLock) about(statement, key string) query {
	if l.name != nil {
		key = l.name(key)
	}
	return query{text: strings.ReplaceAll(statement, "%s", key)}
}

// number stands for a key in PostgreSQL.
func number(key string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return fmt.Sprint(int64(h.Sum64()))
}

var (
	advisory   = sqlLock{take: "SELECT pg_advisory_lock(%s)", release: "SELECT pg_advisory_unlock(%s)", name: number}
	advisoryTx = sqlLock{take: "BEGIN; SELECT pg_advisory_xact_lock(%s)", release: "COMMIT", name: number}
	pgRow      = sqlLock{row: "INSERT INTO bench_locks VALUES ('%s') ON CONFLICT DO NOTHING", take: lockRow, release: "COMMIT", name: number}
	mysqlRow   = sqlLock{row: "INSERT IGNORE INTO bench_locks VALUES ('%s')", take: lockRow, release: "COMMIT"}
	// getLock is MySQL's lock by name. It asks again every second, because the server does not notice that a waiter's connection was closed.
	getLock = sqlLock{take: "SELECT GET_LOCK('%s', 1)", asks: true, release: "DO RELEASE_LOCK('%s')"}
	// immediate is a transaction that writes nothing.
	immediate = sqlLock{take: "BEGIN IMMEDIATE", release: "COMMIT"}
)

const lockRow = "BEGIN; SELECT name FROM bench_locks WHERE name = '%s' FOR UPDATE"

// openFlock locks files beside the database.
func openFlock(o Options) (Instance, error) {
	dir := filepath.Dir(strings.TrimPrefix(o.Addr, "sqlite://"))
	return lock(func(_ context.Context, key string) (func() error, error) {
		file, err := os.OpenFile(filepath.Join(dir, url.PathEscape(key)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		for {
			switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); {
			case err == nil:
				return file.Close, nil // which unlocks
			case !errors.Is(err, syscall.EINTR):
				return nil, errors.Join(err, file.Close())
			}
		}
	}, nothing), nil
}
