package redislock

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

func TestKilledHolderIsFollowedWithinItsLease(t *testing.T) {
	testscope.Long(t, "kills processes")
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
	testscope.Long(t, "kills processes")
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
	testscope.Long(t, "kills processes")
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
	require.Equal(t, int64(11), queueLength(s, key(t)))
	time.Sleep(testTTL/3 + 200*time.Millisecond) // their heartbeats are stale
	release(t, l)
	start := time.Now()
	l2 := granted(t, p)
	inTime(t, "ten dead waiters", time.Since(start), 20*time.Millisecond)
	release(t, l2)
}

func TestPausedHolderSeesTheLossAndItsFenceIsOld(t *testing.T) {
	testscope.Long(t, "stops processes")
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
	testscope.Long(t, "stops processes")
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

// dies is kill -9 as far as the server can see: no heartbeats, nobody listens, nothing is released.
func dies(b *Backend) { b.cancel(); b.sub.close() }

// The lock then expires sooner than its first waiter knows.
func TestWriterEntersWhenADeadReaderExpiresThoughALiveOneLeftBefore(t *testing.T) {
	testscope.Long(t, "kills processes")
	t.Parallel()
	const ttl, longer = 800 * time.Millisecond, 6 * time.Second
	for name, leave := range map[string]func(t *testing.T, reader user, l distributed.Lease){
		"by a release": func(t *testing.T, _ user, l distributed.Lease) { release(t, l) },
		"by an enter": func(t *testing.T, reader user, l distributed.Lease) {
			reader.place(key(t), func(r *distributed.Request) { r.Prev = l })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			near, far := open(t, s.Addr), open(t, s.Addr)
			start := time.Now()
			newUser(t, far).lasting(ttl).lease(key(t), shared).Abandon() // as if its process had died
			reader := newUser(t, near).lasting(longer)
			l := reader.lease(key(t), shared)
			p := newUser(t, near).lasting(longer).place(key(t))
			time.Sleep(50 * time.Millisecond)
			leave(t, reader, l)
			writer := granted(t, p)
			inTime(t, "a writer behind a dead reader", time.Since(start), distributed.ClaimWindow(ttl))
			release(t, writer)
		})
	}
}

func TestDeadWriterBeforeReadersIsPassedOver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	near, dead := open(t, s.Addr), open(t, s.Addr)
	l := newUser(t, near).lease(key(t), shared) // a reader that stays
	_ = newUser(t, dead).place(key(t))          // a writer, killed
	p := newUser(t, near).place(key(t), shared) // a reader behind it
	dies(dead)
	start := time.Now()
	select {
	case l2 := <-p.Granted():
		inTime(t, "reader behind a dead writer", time.Since(start), testTTL)
		release(t, l2)
	case <-time.After(8 * testTTL):
		t.Errorf("the reader still waits after %v (8 T, 16 W); reader 1 healthy: %v", time.Since(start), l.Healthy())
	}
	release(t, l)
}

// TestDeadWriterBeforeReadersAfterTheClockIsSetBack: its last heartbeat seems to be yet to come, for as long as the clock
// was set back by.
func TestDeadWriterBeforeReadersAfterTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	near, dead := open(t, s.Addr), open(t, s.Addr)
	l := newUser(t, near).lease(key(t), shared)
	writer := newUser(t, dead)
	w := writer.place(key(t))
	p := newUser(t, near).place(key(t), shared)
	dies(dead)
	noted := fmt.Sprintf("%v %s x %d %d", attemptBehind(w).Wire.id, dead.s.process, testTTL.Milliseconds(), time.Now().Add(time.Hour).UnixMilli())
	s.Do("HSET", keysOf(key(t), "")[3], instanceName(writer.name), noted)
	start := time.Now()
	l2 := granted(t, p)
	inTime(t, "reader behind a dead writer", time.Since(start), testTTL)
	release(t, l2)
	release(t, l)
}

func TestDeadReaderAmongReadersIsPassedOver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	near, dead := open(t, s.Addr), open(t, s.Addr)
	w := newUser(t, near).lease(key(t))
	p1 := newUser(t, near).place(key(t), shared)
	_ = newUser(t, dead).place(key(t), shared)
	p3 := newUser(t, near).place(key(t), shared)
	dies(dead)
	time.Sleep(testTTL) // the claim of w goes on, the dead one is stale
	release(t, w)
	l1 := granted(t, p1)
	start := time.Now()
	select {
	case l3 := <-p3.Granted():
		inTime(t, "reader behind a dead reader", time.Since(start), testTTL)
		release(t, l3)
	case <-time.After(8 * testTTL):
		t.Errorf("the reader behind a dead one still waits after %v", time.Since(start))
	}
	release(t, l1)
}
