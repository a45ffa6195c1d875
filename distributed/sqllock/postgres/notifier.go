package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wllock/wllock/distributed/sqllock"
)

const (
	// firstPause and longestPause are the times before a connection that was lost is made anew, with jitter.
	firstPause   = 20 * time.Millisecond
	longestPause = 2 * time.Second
	// quiet is how long a connection may say nothing until it is asked whether it lives: a lost route is noticed then. Until
	// then hand-overs are found by polling every T/6.
	quiet = 10 * time.Second
	// pingTime bounds that question.
	pingTime = 2 * time.Second
)

// NewNotifier returns a Notifier for sqllock.WithNotifier, which Open has already. It uses one connection, as long as the Backend is
// open. The connection has to be to the server itself, or through a pooler that keeps sessions.
func NewNotifier(rawURL string) (sqllock.Notifier, error) {
	config, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	return notifier{config}, nil
}

type notifier struct{ config *pgx.ConnConfig }

// Listen implements sqllock.Notifier.
func (n notifier) Listen(ctx context.Context, channel string, notify func(string), connected func(bool)) {
	pause := firstPause
	for ctx.Err() == nil {
		start := time.Now()
		n.session(ctx, channel, notify, connected)
		connected(false)
		if time.Since(start) > longestPause {
			pause = firstPause
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, longestPause)
	}
}

// session is one connection.
func (n notifier) session(ctx context.Context, channel string, notify func(string), connected func(bool)) {
	conn, err := pgx.ConnectConfig(ctx, n.config.Copy())
	if err != nil {
		return
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTime)
		defer cancel()
		_ = conn.Close(end)
	}()
	if _, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return
	}
	connected(true)
	for ctx.Err() == nil {
		n.wait(ctx, conn, notify)
		if conn.IsClosed() || !alive(ctx, conn) {
			return
		}
	}
}

// wait passes on notifications until there is none for a while.
func (n notifier) wait(ctx context.Context, conn *pgx.Conn, notify func(string)) {
	for {
		within, cancel := context.WithTimeout(ctx, quiet)
		got, err := conn.WaitForNotification(within)
		cancel()
		if err != nil {
			return
		}
		notify(got.Payload)
	}
}

func alive(ctx context.Context, conn *pgx.Conn) bool {
	within, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	return conn.Ping(within) == nil
}
