package sqllock

import (
	"slices"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed/driver"
)

const (
	// maxIdleHands bounds the goroutines that wait for a request.
	maxIdleHands = 8
	// handPatience is how long they do.
	handPatience = time.Second
)

// crew runs requests. A goroutine that is done stays for a while, because its stack has grown: on a new one it would grow anew
// in the depths of a driver for every request, which costs a lone caller on SQLite a tenth of its time.
type crew struct {
	mu     sync.Mutex
	idle   []chan func() // guarded by mu; each receives one function, or is closed
	closed bool          // guarded by mu
}

// run runs fn on a goroutine. It reports false when the Backend is closed.
func (c *crew) run(client *driver.Backend[ours], fn func()) bool {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		hand := c.idle[n-1]
		c.idle[n-1], c.idle = nil, c.idle[:n-1]
		c.mu.Unlock()
		hand <- fn
		return true
	}
	c.mu.Unlock()
	if !client.Begin() { // a task from its first request to its end, so that Close waits for it
		return false
	}
	go func() {
		defer client.Done()
		for hand := make(chan func(), 1); fn != nil; fn = c.rest(hand) {
			fn()
		}
	}()
	return true
}

// rest waits for the next request; nil: there will be none.
func (c *crew) rest(hand chan func()) func() {
	c.mu.Lock()
	stays := !c.closed && len(c.idle) < maxIdleHands
	if stays {
		c.idle = append(c.idle, hand)
	}
	c.mu.Unlock()
	if !stays {
		return nil
	}
	timer := time.NewTimer(handPatience)
	defer timer.Stop()
	select {
	case fn := <-hand:
		return fn
	case <-timer.C:
	}
	c.mu.Lock()
	at := slices.Index(c.idle, hand)
	if at >= 0 {
		c.idle = slices.Delete(c.idle, at, at+1)
	}
	c.mu.Unlock()
	if at >= 0 {
		return nil
	}
	return <-hand // it was taken just now, or the crew was closed
}

// close ends those that wait. Tasks that run end by themselves.
func (c *crew) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, hand := range c.idle {
		close(hand)
	}
	c.idle = nil
}
