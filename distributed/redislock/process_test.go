package redislock

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
)

func TestKilledHolderIsFollowedWithinItsLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, c := range map[string]struct{ age, bound time.Duration }{
		"claimed":   {testTTL * 3 / 4, testTTL},
		"unclaimed": {0, distributed.ClaimWindow(testTTL)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holder := startChild(t, s.Addr, key(t), testTTL)
			holder.says("held")
			p := newUser(t, open(t, s.Addr)).place(key(t))
			time.Sleep(c.age)
			holder.signal(syscall.SIGKILL)
			start := time.Now()
			l := granted(t, p)
			inTime(t, "kill -9 of a holder, "+name, time.Since(start), c.bound+distributed.HeartbeatInterval(testTTL))
			release(t, l)
		})
	}
}

func TestKilledWaiterCostsItsClaimWindow(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	l := newUser(t, b).lease(key(t))
	dead := startChild(t, s.Addr, key(t), testTTL)
	dead.says("queued")
	p := newUser(t, b).place(key(t))
	dead.signal(syscall.SIGKILL)
	time.Sleep(20 * time.Millisecond) // dead, but its last heartbeat is fresh
	release(t, l)
	start := time.Now()
	l2 := granted(t, p)
	inTime(t, "kill -9 of the first waiter", time.Since(start), distributed.ClaimWindow(testTTL))
	release(t, l2)
}

func TestWaitersLongDeadAreSkippedAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	l := newUser(t, b).lease(key(t))
	var dead []*child
	for range 10 {
		c := startChild(t, s.Addr, key(t), testTTL)
		c.says("queued")
		dead = append(dead, c)
	}
	p := newUser(t, b).place(key(t))
	for _, c := range dead {
		c.signal(syscall.SIGKILL)
	}
	time.Sleep(testTTL/3 + 200*time.Millisecond) // their heartbeats are stale
	release(t, l)
	start := time.Now()
	l2 := granted(t, p)
	inTime(t, "ten dead waiters", time.Since(start), 20*time.Millisecond)
	release(t, l2)
}

func TestPausedHolderSeesTheLossAndItsFenceIsOld(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder := startChild(t, s.Addr, key(t), testTTL)
	old, err := strconv.ParseUint(holder.says("held"), 10, 64)
	require.NoError(t, err)
	p := newUser(t, open(t, s.Addr)).place(key(t))
	holder.signal(syscall.SIGSTOP)
	l := granted(t, p)
	current := fence(t, l)
	time.Sleep(testTTL)
	holder.signal(syscall.SIGCONT)
	require.Equal(t, "true false", holder.says("lost")[:len("true false")], "over by the clocks, not healthy")
	require.Less(t, old, current, "a store that has seen the next fence refuses the paused holder's")
	release(t, l)
}

func TestPausedWaiterIsPassedOver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := open(t, s.Addr)
	l := newUser(t, b).lease(key(t))
	waiter := startChild(t, s.Addr, key(t), testTTL)
	waiter.says("queued")
	p := newUser(t, b).place(key(t))
	waiter.signal(syscall.SIGSTOP)
	release(t, l)
	start := time.Now()
	l2 := granted(t, p)
	inTime(t, "SIGSTOP of a waiter across its grant", time.Since(start), distributed.ClaimWindow(testTTL))
	release(t, l2)
}
