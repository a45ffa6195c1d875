package sqllock

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// ownNotifier hears what a test says, and nothing else, as behind a pooler that keeps no sessions. It tells the test of each beginning.
type ownNotifier struct {
	notify    chan func(string)
	connected chan func(bool)
}

func newNotifier() ownNotifier {
	return ownNotifier{make(chan func(string), 100), make(chan func(bool), 100)}
}

func (n ownNotifier) Listen(ctx context.Context, _ string, notify func(string), connected func(bool)) {
	n.notify <- notify
	n.connected <- connected
	<-ctx.Done()
}

// A LISTEN that was answered is not believed: hand-overs are found by polling, with one warning, and the Notifier begins anew.
func TestNotifierThatHearsNothing(t *testing.T) {
	t.Parallel()
	d, deaf := newPostgres(t), newNotifier()
	var log testlocker.Log
	b := d.backend(t, WithNotifier(deaf), WithLogger(log.Logger()))
	l := enter(t, d.backend(t), "k")
	p := queue(t, b, "k")
	(<-deaf.connected)(true)
	<-deaf.connected // it has begun anew
	require.False(t, b.pushed())
	free(t, l)
	free(t, awaited(t, p)) // long before a heartbeat, which a pushed waiter would look with
	require.Equal(t, 1, log.Count("level=WARN"))
}

// Hand-overs count as pushed from our own notification on, until the connection is lost.
func TestNotifierThatHears(t *testing.T) {
	t.Parallel()
	n := newNotifier()
	b := newPostgres(t).backend(t, WithNotifier(n))
	notify, connected := <-n.notify, <-n.connected
	require.False(t, b.pushed())
	connected(true)
	require.False(t, b.pushed(), "a connection alone says nothing")
	notify("")
	require.True(t, b.pushed())
	connected(false)
	require.False(t, b.pushed())
}

// A process that neither holds nor waits asks the database nothing, so that one may sleep that sleeps when nobody asks.
func TestIdleAsksNothing(t *testing.T) {
	testscope.Long(t, "it watches a clock")
	t.Parallel()
	d, n := newPostgres(t), newNotifier()
	b := d.backend(t, WithNotifier(n))
	(<-n.notify)("")
	(<-n.connected)(true)
	free(t, enter(t, b, "k"))
	time.Sleep(hearTime)
	before := d.wire.statements.Load()
	time.Sleep(3 * hearEvery)
	require.Zero(t, d.wire.statements.Load()-before)
}

// The queue of notifications is full, because somebody listens and does not read: locks are given and handed over all the same.
func TestFullQueueOfNotificationsRefusesNobody(t *testing.T) {
	t.Parallel()
	d := newPostgres(t)
	setUp := d.backend(t)
	run(t, setUp, `CREATE FUNCTION pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS
		'BEGIN RAISE EXCEPTION ''too many notifications in the NOTIFY queue'' USING ERRCODE = ''54000''; END'`)
	run(t, setUp, `DO 'BEGIN EXECUTE format(''ALTER DATABASE %I SET search_path = public, pg_catalog'', current_database()); END'`)
	for key, mode := range map[string]testlocker.Change{"writer": writing, "reader": reading} {
		var log testlocker.Log
		b := d.backend(t, WithNotifier(newNotifier()), WithLogger(log.Logger()))
		other := d.backend(t, WithNotifier(newNotifier()))
		l := enter(t, b, key)
		p := queue(t, other, key, by("b"), mode)
		free(t, l)
		free(t, awaited(t, p))
		b.push.quiet.Store(0)
		require.ErrorIs(t, b.loud(&pgconn.PgError{Code: queueFull}), errQueueFull)
		require.Equal(t, 1, log.Count("level=WARN"), "however long it is full")
	}
}
