package migrating

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redisson takes the lock that Java services take with Redisson's getLock(name), inside a lock of wllock, while such services are
// left. The two cannot share a key: Redisson keeps its lock in a hash, and its commands fail on the string in which wllock keeps one.
//
//	err := locker.Do(ctx, "orders", "42", func(ctx context.Context) error {
//		return java.Do(ctx, "orders:42", work)
//	})
//
// The lock of wllock queues the callers in Go, so that one of them at a time stands against the Java services, and it carries the fence. What
// Redisson's documentation says of its lock is kept: a hash with the owner as field and its depth as value, which expires unless it is
// renewed (30 s), and a message to those that wait when it is released. Its lock is not fair, and this one is not either.
type Redisson struct {
	// Client should not repeat commands by itself (MaxRetries: -1): a release whose answer was lost would look like the loss of the lock.
	Client redis.UniversalClient
	// Watchdog is how long the lock lasts unless it is renewed, every third of it: lockWatchdogTimeout of Redisson. 0: 30 s.
	Watchdog time.Duration
}

const (
	watchdog = 30 * time.Second // Redisson's default
	// releaseTime bounds the release, which goes out also when the caller's context has ended.
	releaseTime = 5 * time.Second
	// lastTry is how long a try may take before its answer counts as lost.
	lastTry = 3 * time.Second
)

// ErrLost is the cause with which the context of a function ends whose lock is not ours any more.
var ErrLost = errors.New("the lock of Redisson is lost")

var (
	// take returns -3 for the lock, also if it is asked again, otherwise how long the lock of another lasts, in ms (-1: for ever).
	// KEYS: lock. ARGV: owner, ms.
	take = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return redis.call('PTTL', KEYS[1]) end
redis.call('HSET', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return -3`)
	// renew returns 1 if the lock is still the owner's. KEYS: lock. ARGV: owner, ms.
	renew = redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)
	// free returns 1 if the lock was still the owner's. KEYS: lock, channel. ARGV: owner.
	free = redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], '0')
return 1`)
)

const taken = -3

// channel is where Redisson tells those that wait for the lock that it is free.
func channel(name string) string {
	if strings.Contains(name, "{") {
		return "redisson_lock__channel:" + name
	}
	return "redisson_lock__channel:{" + name + "}"
}

// Do runs fn under the lock that Redisson calls name. The function's context ends with ErrLost if the lock is lost, which is then joined with its
// error.
func (r Redisson) Do(ctx context.Context, name string, fn func(context.Context) error) error {
	h := &held{Redisson: r, name: name, owner: rand.Text() + ":1"}
	if h.Watchdog == 0 {
		h.Watchdog = watchdog
	}
	if err := h.wait(ctx); err != nil {
		return err
	}
	return h.run(ctx, fn)
}

// held is one caller's lock.
type held struct {
	Redisson
	name, owner string
	asked       time.Time // when the try was sent that got the lock: it lasts from then on
}

// wait takes the lock: after a message that it is free, or when that of another expires.
func (h *held) wait(ctx context.Context) error {
	left, err := h.try(ctx)
	if err != nil || left == taken {
		return err
	}
	messages := h.Client.Subscribe(ctx, channel(h.name))
	defer func() { _ = messages.Close() }()
	if _, err := messages.Receive(ctx); err != nil { // from here on no message is missed
		return err
	}
	for {
		if left, err = h.try(ctx); err != nil || left == taken {
			return err
		}
		if left < 0 || left > h.Watchdog.Milliseconds() { // messages can be lost
			left = h.Watchdog.Milliseconds()
		}
		select {
		case <-messages.Channel():
		case <-time.After(time.Duration(left) * time.Millisecond):
		case <-ctx.Done(): // no try is under way, so there is nothing to give back
			return ctx.Err()
		}
	}
}

// try asks once. If the answer is lost, the lock may be ours: it is given back.
func (h *held) try(ctx context.Context) (int64, error) {
	bounded, cancel := context.WithTimeout(ctx, lastTry)
	defer cancel()
	h.asked = time.Now()
	left, err := take.Run(bounded, h.Client, []string{h.name}, h.owner, h.Watchdog.Milliseconds()).Int64()
	if err != nil {
		_ = h.release(ctx) // if this does not arrive either, the lock expires
		return 0, fmt.Errorf("lock %q of Redisson: %w", h.name, err)
	}
	return left, nil
}

// run calls fn while the lock is renewed.
func (h *held) run(ctx context.Context, fn func(context.Context) error) (err error) {
	inside, end := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		h.keep(inside, end)
	}()
	defer func() {
		end(nil)
		<-stopped
		if lost := h.release(ctx); lost != nil {
			err = errors.Join(lost, err)
		}
	}()
	return fn(inside)
}

// keep renews the lock until ctx ends, and ends ctx when the lock is not ours any more or would have expired without an answer.
func (h *held) keep(ctx context.Context, end context.CancelCauseFunc) {
	until := h.asked.Add(h.Watchdog)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(h.Watchdog / 3):
		}
		asked := time.Now()
		bounded, cancel := context.WithDeadline(ctx, until)
		n, err := renew.Run(bounded, h.Client, []string{h.name}, h.owner, h.Watchdog.Milliseconds()).Int64()
		cancel()
		switch {
		case err == nil && n == 1:
			until = asked.Add(h.Watchdog)
		case err == nil || !time.Now().Before(until):
			end(ErrLost)
			return
		}
	}
}

// release gives the lock back. The caller's context may have ended.
func (h *held) release(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	n, err := free.Run(bounded, h.Client, []string{h.name, channel(h.name)}, h.owner).Int64()
	if err == nil && n == 0 {
		return ErrLost
	}
	return err
}
