package recipes_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/internal/redistest"
)

func TestMissingValueIsComputedOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	var computed atomic.Int32
	lockers := openThree(t, server)
	caches := map[*wllock.Locker]*recipes.Cache{}
	for _, l := range lockers {
		caches[l] = recipes.NewCache(recipes.Cache{Redis: client, TTL: time.Minute, Compute: func(_ context.Context, key string) (string, error) {
			computed.Add(1)
			time.Sleep(100 * time.Millisecond)
			return "value of " + key, nil
		}}, l)
	}
	inEach(lockers, 30, func(l *wllock.Locker, _ int) {
		value, err := caches[l].Get(t.Context(), "42")
		assert.NoError(t, err)
		assert.Equal(t, "value of 42", value)
	})
	require.EqualValues(t, 1, computed.Load())
}

func TestFailedComputationIsTriedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	away := errors.New("the database is away")
	cache := recipes.NewCache(recipes.Cache{Redis: server.Client(), TTL: time.Minute, Compute: func(context.Context, string) (string, error) {
		err := away
		away = nil
		return "value", err
	}}, open(t, server))
	_, err := cache.Get(t.Context(), "42")
	require.EqualError(t, err, "the database is away")
	value, err := cache.Get(t.Context(), "42")
	require.NoError(t, err)
	require.Equal(t, "value", value)
}

// slowReader gives a writer time between the two questions of a reader.
type slowReader struct{}

func (slowReader) DialHook(next redis.DialHook) redis.DialHook { return next }

func (slowReader) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (slowReader) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hgetall" {
			time.Sleep(10 * time.Millisecond)
		}
		return next(ctx, cmd)
	}
}

// Prices are written in two halves, and expire while they are read: no reader sees one half, and each expiry is filled once.
func TestNoReaderSeesHalfOfACatalog(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	require.NoError(t, client.HSet(t.Context(), "prices", "half", "0").Err()) // of a process that died
	client.AddHook(slowReader{})
	var edition atomic.Int32
	load := func(_ context.Context, set func(product, price string) error) error {
		n := strconv.Itoa(int(edition.Add(1)))
		err := set("1000", n)
		time.Sleep(20 * time.Millisecond)
		return errors.Join(err, set("2000", n))
	}
	until := time.Now().Add(time.Second)
	inEach(openThree(t, server), 5, func(l *wllock.Locker, i int) {
		catalog := &recipes.Catalog{Locker: l, Redis: client, Load: load, TTL: time.Minute}
		for time.Now().Before(until) {
			prices, err := catalog.Prices(t.Context())
			if !assert.NoError(t, err) || !assert.Len(t, prices, 2) || !assert.Equal(t, prices["1000"], prices["2000"]) {
				return
			}
			if i == 0 {
				client.Del(t.Context(), "prices:complete") // it expires
				time.Sleep(50 * time.Millisecond)
			}
		}
	})
	require.Greater(t, edition.Load(), int32(1))
}
