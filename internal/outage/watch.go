package outage

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed"
)

// doubt has the backend asked at once. The caller holds mu.
func (l *LocalOnly) doubt() {
	l.doubted = true
	l.watch()
	select {
	case l.wake <- struct{}{}:
	default: // it is awake
	}
}

// doubtIt is doubt for who does not hold mu.
func (l *LocalOnly) doubtIt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubt()
}

// watch starts the watch unless it runs. The caller holds mu.
func (l *LocalOnly) watch() {
	if l.closed || l.watching {
		return
	}
	l.watching = true
	l.wg.Go(l.run)
}

// run is the watch.
func (l *LocalOnly) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		pause, ok := l.next()
		if !ok {
			return
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
			l.ask()
		case <-l.wake: // look again for how long
		case <-l.ctx.Done():
			return
		}
	}
}

// next is how long to wait before the next ping; false: the watch has ended, and is started anew when it is needed.
// Whoever needs it has said so under mu before, or will find that it does not run.
func (l *LocalOnly) next() (pause time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
	case l.doubted:
		return 0, true
	case l.away.Load() != nil:
		return l.pause, true
	case l.waiting.Load() > 0:
		return l.calm, true
	}
	l.watching = false
	return 0, false
}

// ask pings the backend. An error that is no ErrUnavailable is an answer, too: what is wrong is for Enter to say.
func (l *LocalOnly) ask() {
	l.mu.Lock()
	l.doubted = false
	l.mu.Unlock()
	sent := time.Now()
	ctx, cancel := context.WithTimeout(l.ctx, l.ping)
	defer cancel()
	err := l.Ping(ctx)
	switch {
	case l.ctx.Err() != nil: // closed
	case errors.Is(err, distributed.ErrUnavailable) || ctx.Err() != nil && err != nil:
		l.failed(sent)
	default:
		l.answered()
	}
}
