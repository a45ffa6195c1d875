package contender

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const pgxModule = "github.com/jackc/pgx/v5"

func postgreses() []Contender {
	rival := func(name, settings string, lock pgLock) Contender {
		lock.settings = settings
		return Contender{
			Name:     name,
			Settings: settings + "; a connection for every holder or waiter",
			Module:   pgxModule,
			Commands: statements,
			Open:     lock.open,
			Role:     Rival,
		}
	}
	return append(longer(ours("wllock", defaults+"; hand-overs pushed by NOTIFY", statements, overPostgres), overPostgres),
		rival("advisory", "pg_advisory_lock and pg_advisory_unlock, of the session",
			pgLock{lock: "SELECT pg_advisory_lock(%d)", unlock: "SELECT pg_advisory_unlock(%d)"}),
		rival("advisory-tx", "BEGIN and pg_advisory_xact_lock in one round trip, COMMIT",
			pgLock{lock: "BEGIN; SELECT pg_advisory_xact_lock(%d)", unlock: "COMMIT"}),
		rival("FOR UPDATE", "BEGIN and SELECT ... FOR UPDATE of a lock's row in one round trip, COMMIT",
			pgLock{lock: "BEGIN; SELECT name FROM bench_locks WHERE name = '%d' FOR UPDATE", unlock: "COMMIT", row: true}),
		plain(pgxModule, statements, func(o Options) (execer, error) { return openPostgres(o) }))
}

// pgLock is one way to lock in PostgreSQL.
type pgLock struct {
	settings     string
	lock, unlock string // with %d for a number that stands for the key
	row          bool   // the row of the key has to be there
}

type pgLocks struct {
	pgLock
	*pgPool
	rows
}

func (l pgLock) open(o Options) (Instance, error) {
	pool, err := openPostgres(o)
	if err != nil {
		return nil, err
	}
	return &pgLocks{pgLock: l, pgPool: pool}, nil
}

func (l *pgLocks) Do(ctx context.Context, key string, f func(context.Context) error) error {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	number := int64(h.Sum64())
	if l.row {
		if err := l.ensure(key, func() error {
			return l.exec(ctx, fmt.Sprintf("INSERT INTO bench_locks VALUES ('%d') ON CONFLICT DO NOTHING", number))
		}); err != nil {
			return err
		}
	}
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, numbered(l.lock, number), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	err = f(ctx)
	_, released := conn.Exec(cleanUp, numbered(l.unlock, number), pgx.QueryExecModeSimpleProtocol)
	return errors.Join(err, released)
}

func numbered(text string, n int64) string {
	return strings.ReplaceAll(text, "%d", fmt.Sprint(n))
}

// pgPool is an execer over pgx itself, which is faster than through database/sql.
type pgPool struct{ pool *pgxpool.Pool }

func openPostgres(o Options) (*pgPool, error) {
	config, err := pgxpool.ParseConfig(o.Addr)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(o.Workers)
	config.MaxConnLifetime, config.MaxConnIdleTime = time.Hour, time.Hour
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	err = connectAll(o.Workers, func(ctx context.Context) (func(), error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return conn.Release, nil
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &pgPool{pool}, nil
}

func (p *pgPool) exec(ctx context.Context, statement string) error {
	_, err := p.pool.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol)
	return err
}

func (p *pgPool) Close() error {
	p.pool.Close()
	return nil
}
