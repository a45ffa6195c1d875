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
	// closeTime bounds the goodbye.
	closeTime = 2 * time.Second
)

// NewNotifier returns a Notifier for sqllock.WithNotifier. Open uses one already. It occupies one connection as long as the Backend is open. The
// connection must go to the server itself, or through a pooler that keeps sessions.
func NewNotifier(rawURL string) (sqllock.Notifier, error) {
	t, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	return notifier{t}, nil
}

type notifier struct{ target }

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
	config := n.Copy()
	n.logIn(config)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		_ = conn.Close(end)
	}()
	if _, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return
	}
	connected(true)
	for {
		got, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		notify(got.Payload)
	}
}
