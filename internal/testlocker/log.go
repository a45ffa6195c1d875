package testlocker

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Log keeps what is logged, and may be read while it is written. The zero value is ready.
type Log struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// Count returns how often what was written.
func (l *Log) Count(what string) int { return strings.Count(l.String(), what) }

// Logger writes to it.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
