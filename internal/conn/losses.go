package conn

import (
	"sync"
	"time"
)

// mostLosses are logged within countedFor, so that a server that comes and goes does not fill the log. If it stays away, the
// first loss after that is.
const (
	mostLosses = 3
	countedFor = time.Minute
)

// LossLog says which losses of a subscription are to be logged. It is safe for concurrent use.
type LossLog struct {
	mu    sync.Mutex
	told  bool      // guarded by mu; the loss was logged
	since time.Time // guarded by mu; when the losses were first counted
	count int       // guarded by mu; how many were logged since then
}

// Lost notes a loss, and reports whether it is to be logged: one line for all that follow each other, and one when it is back.
func (l *LossLog) Lost() (log bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told {
		return false
	}
	if time.Since(l.since) > countedFor {
		l.since, l.count = time.Now(), 0
	}
	if log = l.count < mostLosses; log {
		l.count, l.told = l.count+1, true
	}
	return log
}

// Back notes the end of a loss, and reports whether it is to be logged.
func (l *LossLog) Back() (log bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log, l.told = l.told, false
	return log
}
