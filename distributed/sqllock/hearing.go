package sqllock

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// hearEvery is how often a notification to ourselves tells whether notifications arrive, while there is somebody to be notified.
	hearEvery = 10 * time.Second
	// hearMemory is how long one that has arrived is believed.
	hearMemory = 2 * hearEvery
	// hearTime is how long one may take.
	hearTime = 2 * time.Second
	// hearPause is between two that waiters ask for.
	hearPause = time.Second
	// firstDeafPause and longestDeafPause are the times before a Notifier that hears nothing begins anew.
	firstDeafPause   = time.Second
	longestDeafPause = time.Minute
)

// push is the part of a Backend that is notified.
//
// A LISTEN that was answered says little: behind a pooler that keeps no sessions, or at a server that is the primary no more, nothing
// ever comes, and a connection may be lost without a word. So hand-overs count as pushed when a notification of our own has come, which
// is sent over the pool and not over the Notifier's connection. A process that neither holds nor waits sends none, so that an idle
// database may sleep.
//
// Who owns what: the goroutine of listen calls Listen, and ends one that hears nothing before it calls the next. Callbacks of Listen and
// waiters only note what they know, in the atomics and channels here.
type push struct {
	up     atomic.Bool   // notifications arrive
	heard  atomic.Int64  // when one of our own did, in nanoseconds since the Backend's base
	want   chan struct{} // a waiter wants to know; holds one
	quiet  atomic.Int64  // until then, in nanoseconds since the Backend's base, this Backend notifies nobody
	full   atomic.Bool   // the server's queue was full, since they last arrived: it is said once
	warned bool          // the same of what the goroutine of listen has found out; of that alone
}

// pushed reports that hand-overs are pushed, and finds out if that is not known.
func (b *Backend) pushed() bool {
	if b.set.notifier == nil {
		return false
	}
	works := b.push.up.Load() && time.Since(b.base)-time.Duration(b.push.heard.Load()) < hearMemory
	if !works {
		signal(b.push.want)
	}
	return works
}

// listen starts to listen, if there is a Notifier.
func (b *Backend) listen() {
	if b.set.notifier == nil {
		return
	}
	b.push.want = make(chan struct{}, 1)
	b.client.Go(func() {
		for pause := firstDeafPause; b.ctx.Err() == nil; pause = min(2*pause, longestDeafPause) {
			if b.listenUntilDeaf() {
				pause = firstDeafPause
			}
			sleep(b.ctx, pause)
		}
	})
}

// listener is one Listen.
type listener struct {
	changed chan struct{} // the connection was made, or lost; holds one
	heard   chan struct{} // our own notification has come; holds one
	there   atomic.Bool   // there is a connection
}

// listenUntilDeaf runs one Listen. It returns when that hears nothing, and reports whether it ever did.
func (b *Backend) listenUntilDeaf() (heard bool) {
	e := &listener{changed: make(chan struct{}, 1), heard: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.set.notifier.Listen(ctx, channelOf(b.process), func(token string) { b.hear(e, token) }, func(there bool) {
			e.there.Store(there)
			if !there {
				b.setPush(false)
			}
			signal(e.changed)
		})
	}()
	heard = b.watchListener(ctx, e)
	cancel()
	<-done
	b.setPush(false)
	return heard
}

// hear takes a notification: of a token, or our own.
func (b *Backend) hear(e *listener, token string) {
	if token == "" {
		b.push.heard.Store(int64(time.Since(b.base)))
		b.push.full.Store(false)
		b.setPush(true)
		signal(e.heard)
		return
	}
	if a := b.known.find(token); a != nil {
		a.Wire.mu.Lock()
		a.Wire.notified = true
		a.Wire.mu.Unlock()
		a.Poke()
	}
}

// setPush notes whether notifications arrive. After a change some may have been missed.
func (b *Backend) setPush(up bool) {
	if b.push.up.Swap(up) != up {
		for _, a := range b.known.all() {
			a.Poke()
		}
	}
}

// watchListener sends notifications to ourselves, until one does not come.
func (b *Backend) watchListener(ctx context.Context, e *listener) (heard bool) {
	for last := (time.Time{}); ; last = time.Now() {
		if b.waitToHear(ctx, e, last); ctx.Err() != nil {
			return heard
		}
		hears, known := b.hears(ctx, e)
		switch {
		case ctx.Err() != nil:
			return heard
		case hears:
			heard, b.push.warned = true, false
		case known:
			b.warnDeaf("notifications do not arrive: the connection has to be to the server, or through a pooler that keeps sessions")
			return heard
		case !e.there.Load():
			b.warnDeaf("no connection for notifications")
		}
	}
}

// waitToHear returns when it is time to send one: the connection has changed, a waiter wants to know, or a notification may come for
// somebody and the last one is old.
func (b *Backend) waitToHear(ctx context.Context, e *listener, last time.Time) {
	timer := time.NewTicker(hearEvery)
	defer timer.Stop()
	for {
		select {
		case <-e.changed:
			return
		case <-b.push.want:
			if time.Since(last) >= hearPause {
				return
			}
		case <-timer.C:
			if b.known.count() > 0 {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// hears sends one (rule D12). Nothing is known if there is no connection to hear it, or the database does not take it.
func (b *Backend) hears(ctx context.Context, e *listener) (hears, known bool) {
	select {
	case <-e.heard: // late
	default:
	}
	if !e.there.Load() || !b.notifyOurselves(ctx) {
		return false, false
	}
	timer := time.NewTimer(hearTime)
	defer timer.Stop()
	select {
	case <-e.heard:
		return true, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false, e.there.Load()
}

func (b *Backend) notifyOurselves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, hearTime)
	defer cancel()
	_, err := b.db.ExecContext(ctx, notification, channelOf(b.process), "")
	return err == nil
}

// warnDeaf warns once until they arrive again.
func (b *Backend) warnDeaf(why string) {
	if !b.push.warned {
		b.set.log.Warn("sqllock: hand-overs are found by polling", "why", why)
	}
	b.push.warned = true
}

// signal sends to a channel that holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
