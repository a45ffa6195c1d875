package migrating

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/redistest"
)

// jvm stands for a Java service with Redisson, which is not run here. It does what Redisson's documentation and its source say of
// getLock, command by command: the lock is a hash with a field for the thread; a waiting thread is told of the release by a message, and
// otherwise tries again when the lock expires.
type jvm struct {
	client *redis.Client
	id     string
	thread atomic.Int64
}

const leaseTime = 30 * time.Second // lockWatchdogTimeout

// asks returns nil for the lock, or how long it lasts; like Redisson's it asks about the field before it knows that there is a hash.
var asks = redis.NewScript(`
local free = redis.call('EXISTS', KEYS[1]) == 0
if free or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
	redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
	redis.call('PEXPIRE', KEYS[1], ARGV[1])
	return nil
end
return redis.call('PTTL', KEYS[1])`)

var unlocks = redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], 0)
return 1`)

func startJVM(t *testing.T, s *redistest.Server) *jvm {
	t.Helper()
	return &jvm{client: s.Client(func(o *redis.Options) { o.PoolSize = 20 }), id: rand.Text()}
}

// tryLock returns 0 for the lock, or how long to wait.
func (j *jvm) tryLock(ctx context.Context, thread string) (time.Duration, error) {
	ms, err := asks.Run(ctx, j.client, []string{key}, leaseTime.Milliseconds(), j.id+":"+thread).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return time.Duration(ms) * time.Millisecond, err
}

// lock is lock() of a thread.
func (j *jvm) lock(ctx context.Context, thread string) error {
	if left, err := j.tryLock(ctx, thread); err != nil || left == 0 {
		return err
	}
	latch := j.client.Subscribe(ctx, "redisson_lock__channel:{"+key+"}")
	defer latch.Close()
	if _, err := latch.Receive(ctx); err != nil {
		return err
	}
	for {
		left, err := j.tryLock(ctx, thread)
		if err != nil || left == 0 {
			return err
		}
		select {
		case m := <-latch.Channel():
			if m.Payload != "0" {
				return errors.New("not the message of an unlock: " + m.Payload)
			}
		case <-time.After(left):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (j *jvm) unlock(thread string) error {
	_, err := unlocks.Run(context.Background(), j.client, []string{key, "redisson_lock__channel:{" + key + "}"}, j.id+":"+thread).Int64()
	return err // redis.Nil: attempt to unlock lock, not locked by current thread
}

func (j *jvm) turn(ctx context.Context, work func()) error {
	thread := strconv.FormatInt(j.thread.Add(1), 10)
	if err := j.lock(ctx, thread); err != nil {
		return err
	}
	work()
	return j.unlock(thread)
}

func TestJVMExcludesItself(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	people().share(t, enough, service{"java 1", startJVM(t, s).turn}, service{"java 2", startJVM(t, s).turn})
	require.Empty(t, s.Do("KEYS", "*"))
}
