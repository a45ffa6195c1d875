package sqllock

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testscope"
)

// deafNotifier has a connection, and hears nothing, as behind a pooler that keeps no sessions.
type deafNotifier struct{ begun atomic.Int64 }

func (n *deafNotifier) Listen(ctx context.Context, _ string, _ func(string), connected func(bool)) {
	n.begun.Add(1)
	connected(true)
	<-ctx.Done()
}

// A LISTEN that was answered is not believed: hand-overs are found by looking, with one warning, and the Notifier begins anew.
func TestNotifierThatHearsNothing(t *testing.T) {
	t.Parallel()
	d, deaf := newPostgres(t), new(deafNotifier)
	var warnings atomic.Int64
	b := d.backend(t, WithNotifier(deaf), WithLogger(slog.New(counting{&warnings})))
	l := enter(t, d.backend(t), "k")
	_, p, err := b.Enter(t.Context(), distributed.Request{Key: "k", Instance: "i", TTL: time.Minute})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return deaf.begun.Load() > 1 }, time.Minute, time.Millisecond)
	require.False(t, b.pushed())
	require.NoError(t, l.Release(t.Context()))
	select {
	case l = <-p.Granted(): // long before a heartbeat, which a pushed waiter would look with
	case <-time.After(30 * time.Second):
		t.Fatal("not granted")
	}
	require.NoError(t, l.Release(t.Context()))
	require.EqualValues(t, 1, warnings.Load())
}

// ownNotifier passes on what another one hears, and says nothing of its connection until it is told to.
type ownNotifier struct {
	notify    chan func(string)
	connected chan func(bool)
}

func (n ownNotifier) Listen(ctx context.Context, _ string, notify func(string), connected func(bool)) {
	n.notify <- notify
	n.connected <- connected
	<-ctx.Done()
}

// Hand-overs count as pushed from our own notification on, until the connection is lost.
func TestNotifierThatHears(t *testing.T) {
	t.Parallel()
	n := ownNotifier{make(chan func(string), 1), make(chan func(bool), 1)}
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
	d, n := newPostgres(t), ownNotifier{make(chan func(string), 1), make(chan func(bool), 1)}
	b := d.backend(t, WithNotifier(n))
	(<-n.notify)("")
	(<-n.connected)(true)
	require.NoError(t, enter(t, b, "k").Release(t.Context()))
	time.Sleep(hearTime)
	before := d.wire.statements.Load()
	time.Sleep(3 * hearEvery)
	require.Zero(t, d.wire.statements.Load()-before)
}

// The queue of notifications is full, because somebody listens and does not read: locks are given and handed over all the same.
func TestFullQueueOfNotificationsRefusesNobody(t *testing.T) {
	d := newPostgres(t)
	db := d.open()
	defer func() { _ = db.Close() }()
	for _, text := range []string{
		`CREATE FUNCTION pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$`,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database()); END $$`,
	} {
		_, err := db.Exec(text)
		require.NoError(t, err)
	}
	for _, mode := range []distributed.Mode{distributed.Exclusive, distributed.Shared} {
		var warnings atomic.Int64
		b, other := d.backend(t, WithNotifier(silent{}), WithLogger(slog.New(counting{&warnings}))), d.backend(t, WithNotifier(silent{}))
		key := fmt.Sprint("k", mode)
		l := enter(t, b, key)
		_, p, err := other.Enter(t.Context(), distributed.Request{Key: key, Instance: "b", TTL: time.Minute, Mode: mode})
		require.NoError(t, err)
		require.NotNil(t, p)
		require.NoError(t, l.Release(t.Context()))
		select {
		case l := <-p.Granted():
			require.NotNil(t, l)
			require.NoError(t, l.Release(t.Context()))
		case <-time.After(time.Minute):
			t.Fatal("no hand-over")
		}
		b.push.quiet.Store(0)
		require.ErrorIs(t, b.loud(stateError(queueFull)), errQueueFull)
		require.EqualValues(t, 1, warnings.Load(), "however long it is full")
	}
}

// silent is a Notifier whose notifications never come.
type silent struct{}

func (silent) Listen(ctx context.Context, _ string, _ func(string), connected func(bool)) {
	connected(true)
	<-ctx.Done()
}
