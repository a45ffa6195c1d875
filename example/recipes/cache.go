package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock"
)

// Cache is a cache in Redis whose values are expensive to compute.
type Cache struct {
	Redis   *redis.Client
	Compute func(ctx context.Context, key string) (string, error)
	TTL     time.Duration

	fill func(ctx context.Context, key string) (string, error)
}

// NewCache returns a cache that computes a missing value once, however many callers miss it.
func NewCache(c Cache, locker *wllock.Locker) *Cache {
	key := func(key string) string { return key }
	c.fill = wllock.WrapBatch(locker, "cache", key, c.fillFor,
		wllock.WithMaxBatch(wllock.Unlimited), wllock.WithWait(5*time.Second))
	return &c
}

// Get looks without a lock first.
func (c *Cache) Get(ctx context.Context, key string) (string, error) {
	value, err := c.Redis.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return c.fill(ctx, key)
	}
	return value, err
}

// fillFor runs under the lock for all callers of this process that wait for the same key.
func (c *Cache) fillFor(ctx context.Context, batch []*wllock.Item[string, string]) error {
	key := batch[0].Arg // of all
	value, err := c.Redis.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) { // not filled since they looked
		if value, err = c.Compute(ctx, key); err == nil {
			err = c.Redis.Set(ctx, key, value, c.TTL).Err()
		}
	}
	for _, item := range batch {
		item.Result = value
	}
	return err
}

// Catalog is a value of many parts, written one by one: a reader must not see some old ones and some new ones.
type Catalog struct {
	Locker *wllock.Locker
	Redis  *redis.Client
	Load   func(ctx context.Context, set func(product, price string) error) error
	TTL    time.Duration
}

// Prices reads under the shared lock: any number of readers at once, in all processes, and no writer.
func (c *Catalog) Prices(ctx context.Context) (prices map[string]string, err error) {
	wait := wllock.WithWait(5 * time.Second)
	prices, err = wllock.Call(ctx, c.Locker, "catalog", "prices", c.read, wllock.Shared(), wait)
	if errors.Is(err, redis.Nil) { // the shared lock is released; inside it: ErrUpgrade
		return wllock.Call(ctx, c.Locker, "catalog", "prices", c.fill, wait)
	}
	return prices, err
}

// fill runs under the exclusive lock.
func (c *Catalog) fill(ctx context.Context) (map[string]string, error) {
	prices, err := c.read(ctx) // somebody else may have written them since
	if !errors.Is(err, redis.Nil) {
		return prices, err
	}
	if err := c.write(ctx); err != nil {
		return nil, err
	}
	return c.read(ctx)
}

// read returns redis.Nil if the prices are missing, too old, or half written.
func (c *Catalog) read(ctx context.Context) (map[string]string, error) {
	if err := c.Redis.Get(ctx, "prices:complete").Err(); err != nil {
		return nil, err
	}
	return c.Redis.HGetAll(ctx, "prices").Result()
}

func (c *Catalog) write(ctx context.Context) error {
	if err := c.Redis.Del(ctx, "prices").Err(); err != nil { // a half of somebody that died
		return err
	}
	err := c.Load(ctx, func(product, price string) error {
		return c.Redis.HSet(ctx, "prices", product, price).Err()
	})
	if err != nil {
		return err
	}
	return c.Redis.Set(ctx, "prices:complete", "yes", c.TTL).Err()
}
