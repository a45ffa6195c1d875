package sqllock

import (
	"context"
	"strings"
	"time"

	"github.com/wllock/wllock/internal/keyless"
)

// Notifier receives notifications of PostgreSQL, on one connection for the process. Package sqllock/postgres has an implementation.
type Notifier interface {
	// Listen calls notify with the payload of each notification on the channel, and returns when ctx ends. It calls connected before it waits
	// for the first notification, and whenever it has lost its connection or has a new one, because what is sent in between is missed. It calls
	// from one goroutine at a time. If the Backend does not receive its own notifications, it ends ctx and calls Listen again. So Listen need
	// not find out whether its connection works.
	Listen(ctx context.Context, channel string, notify func(payload string), connected func(bool))
}

const (
	// queueFull is PostgreSQL's refusal to commit a notification: some session of the server listens, and does not read. The same
	// without one succeeds, and the others look.
	queueFull = "54000"
	// quietTime is how long nothing is notified then.
	quietTime = 5 * time.Second
)

// errQueueFull says that a statement is to be repeated without notifications.
var errQueueFull = keyless.Errorf("the queue of notifications is full: a session listens and does not read")

// notifies reports that this Backend notifies others.
func (b *Backend) notifies() bool {
	return b.set.notifier != nil && int64(time.Since(b.base)) >= b.push.quiet.Load()
}

// loud passes on the error of what may have notified, as one whose repeat notifies nobody.
func (b *Backend) loud(err error) error {
	if err == nil || b.set.notifier == nil || code(err) != queueFull {
		return err
	}
	if !b.push.full.Swap(true) {
		b.set.log.Warn("sqllock: hand-overs are found by polling", "why", "the server's queue of notifications is full", "error", code(err))
	}
	b.push.quiet.Store(int64(time.Since(b.base) + quietTime))
	return keyless.Errorf("%w: %w", errQueueFull, err)
}

// channelOf returns the channel of a process. It is a name that needs no quotes.
func channelOf(process string) string { return "wllock_" + strings.ToLower(process) }

// notify notifies the processes of these tokens, when the transaction commits.
func (b *Backend) notify(ctx context.Context, q querier, tokens []string) error {
	if !b.notifies() {
		return nil
	}
	for _, token := range tokens {
		process, _, _ := strings.Cut(token, ".")
		if process == b.process {
			continue // it is poked
		}
		if _, err := q.ExecContext(ctx, notification, channelOf(process), token); err != nil {
			return b.loud(err)
		}
	}
	return nil
}

// notifyHeads notifies the heads of queues. If it fails, they look after a while.
func (b *Backend) notifyHeads(ctx context.Context, locks []string) {
	text, names := b.st().list(b.st().text(headsNotified), locks)
	_, _ = b.db.ExecContext(ctx, text, names...)
}
