package command

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// voiceRoom is how many texts wait for a reader of standard error that is slow; the next ones are dropped.
	voiceRoom = 64
	// voiceWait is how long the end of wllock waits for that reader.
	voiceWait = time.Second
)

// voice writes aside, on a goroutine of its own: a pipe that is full or closed neither holds up nor ends who says something.
type voice struct {
	texts chan []byte
	last  chan struct{} // closed by flush: what is in texts is all
	done  chan struct{} // closed when all is written
}

func newVoice(w io.Writer) *voice {
	v := &voice{texts: make(chan []byte, voiceRoom), last: make(chan struct{}), done: make(chan struct{})}
	go v.write(w)
	return v
}

func (v *voice) write(w io.Writer) {
	defer close(v.done)
	for {
		select {
		case text := <-v.texts:
			_, _ = w.Write(text)
		case <-v.last:
			for len(v.texts) > 0 {
				_, _ = w.Write(<-v.texts)
			}
			return
		}
	}
}

// Write implements io.Writer. It never waits.
func (v *voice) Write(text []byte) (int, error) {
	select {
	case v.texts <- bytes.Clone(text):
	default:
	}
	return len(text), nil
}

// flush is called once, and last. A reader that reads nothing does not keep wllock: its goroutine ends with the process.
func (v *voice) flush() {
	close(v.last)
	select {
	case <-v.done:
	case <-time.After(voiceWait):
	}
}

// speakAside has all that is said from now on written aside, and keeps a reader that is gone from ending wllock by SIGPIPE: the command
// would live on without it. It is for a run alone: `wllock ls | head` ends as other programs do.
func (a *app) speakAside() {
	if !signal.Ignored(syscall.SIGPIPE) { // as systemd has it
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // ignored, it would be for the command as well
	}
	v := newVoice(a.err)
	a.err, a.flush = v, v.flush
}

// repeatAfter is how long a library says the same only once. While a sentinel is away go-redis tells each of its tries.
const repeatAfter = time.Minute

// libraries is the logger of those that write to standard error themselves by default. A server's words may be in what they say.
type libraries struct {
	*app
	mu   sync.Mutex
	said map[string]time.Time // guarded by mu; by format
}

// hearLibraries has them say it as all else is said. It comes before any connection, and speakAside does.
func (a *app) hearLibraries() {
	goredis.SetLogger(&libraries{app: a, said: map[string]time.Time{}})
}

// Printf is for go-redis.
func (l *libraries) Printf(_ context.Context, format string, args ...any) {
	l.mu.Lock()
	last, known := l.said[format]
	again := !known || time.Since(last) >= repeatAfter
	if again {
		l.said[format] = time.Now()
	}
	l.mu.Unlock()
	if again {
		l.say(format, args...)
	}
}
