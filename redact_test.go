package wllock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

const keySecret = "sixteen bytes or more"

func TestHashKeys(t *testing.T) {
	secret := []byte(keySecret)
	hash := wllock.HashKeys(secret)
	clear(secret)
	require.Equal(t, "#645fc47328abdeed", hash("4711"), "the same in all processes, and for ever")
	require.NotEqual(t, hash("4711"), wllock.HashKeys([]byte(keySecret+"!"))("4711"))
	for _, short := range [][]byte{nil, {}, []byte("fifteen bytes..")} {
		_, err := wllock.New("test", memlock.New(), wllock.WithKeyRedaction(wllock.HashKeys(short)))
		require.EqualError(t, err, "wllock: WithKeyRedaction(nil): want a function: HashKeys makes one of a secret of 16 bytes or more")
	}
}

// Programs see the key where they work with it.
func TestKeysOfProgramsAreNotRedacted(t *testing.T) {
	l, _ := newLocker(t, wllock.WithKeyRedaction(strings.ToUpper))
	require.NoError(t, l.Do(t.Context(), "n", "k", func(ctx context.Context) error {
		held, ok := wllock.HeldKey(ctx, "n", "k")
		require.True(t, ok)
		require.Equal(t, "test:n:k", held.Key())
		require.Equal(t, "test:n:K", l.Locks(1)[0].Key)
		found, err := l.Inspect(ctx, "n", "k")
		require.NoError(t, err)
		require.Equal(t, "test:n:k", found.Key)
		return nil
	}))
}

// A redaction that panics harms no lock, and shows no key.
func TestRedactionThatPanics(t *testing.T) {
	l, _ := newLocker(t, wllock.WithKeyRedaction(func(key string) string { panic(key) }))
	defer hold(t, l, "n", "k")()
	err := l.Do(t.Context(), "n", "k", never(t), wllock.NoWait())
	require.ErrorIs(t, err, wllock.ErrHeld)
	require.Contains(t, err.Error(), `"test:n:#?"`)
}

// heldElsewhere is a backend that is asked through a decorator, which says of which key.
type heldElsewhere struct{ *memlock.Backend }

func (heldElsewhere) Enter(_ context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	return nil, nil, fmt.Errorf("%s: %w", req.Key, distributed.Held("web-1"))
}

func TestRedactedErrorsTellWhatTheyAre(t *testing.T) {
	l := lockerOn(t, heldElsewhere{memlock.New()}, wllock.WithKeyRedaction(wllock.HashKeys([]byte(keySecret))))
	err := l.Do(t.Context(), "n", "4711", never(t), wllock.NoWait())
	require.Equal(t, "web-1", refusal(t, err, wllock.ErrHeld, wllock.TierDistributed).Holder)
	require.NotContains(t, err.Error(), "4711")
	require.NotContains(t, fmt.Sprintf("%#v", errors.Unwrap(err)), "4711")
}

// unreleased is a backend that does not confirm releases, and says of which key.
type unreleased struct{ *memlock.Backend }

type unreleasedLease struct {
	distributed.Lease
	key string
}

func (l unreleasedLease) Unwrap() distributed.Lease { return l.Lease }

func (l unreleasedLease) Release(ctx context.Context) error {
	_ = l.Lease.Release(ctx)
	return fmt.Errorf("%w: %q", distributed.ErrUnavailable, l.key)
}

func (b unreleased) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	lease, place, err := b.Backend.Enter(ctx, req)
	return unreleasedLease{lease, req.Key}, place, err
}

// With a redaction, who reads the log can find the lock without debug lines.
func TestLogLinesHaveTheRedactedKey(t *testing.T) {
	var lines strings.Builder
	l, err := wllock.New("test", unreleased{memlock.New()}, wllock.WithLogger(slog.New(slog.NewTextHandler(&lines, nil))),
		wllock.WithKeyRedaction(wllock.HashKeys([]byte(keySecret))))
	require.NoError(t, err)
	require.NoError(t, l.Do(t.Context(), "n", "4711", nothing))
	require.NoError(t, l.Close(t.Context()))
	require.Contains(t, lines.String(), `key="\"test:n:#645fc47328abdeed\""`)
	require.Contains(t, lines.String(), "lock not released")
	require.NotContains(t, lines.String(), "4711")
}
