package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

// link is the network below a session. The client library dials through it, because it does not tell what a session needs to
// know, and would wait for too long in some places:
//
//   - the time-out that the server has granted, and when the request for it was sent, are read from the first packets;
//   - it waits for the answer to these up to seven session time-outs, and never closes a connection whose session has
//     expired;
//   - after a reconnect it lets requests overtake the setting of its watches, which moves the zxid from which the
//     server looks for missed events: replies are held back until the watches are set.
type link struct {
	limit  func() time.Duration // for a dial and a handshake
	armed  func() bool          // watches will be set again
	opened func(sent time.Time, timeout time.Duration)
	failed func(sent time.Time, err error, inARow int)
	secure dialer // for TLS; nil: without

	ctx    context.Context // ends when no more connections are wanted
	cancel context.CancelFunc

	mu    sync.Mutex
	wire  *wire // guarded by mu; the present connection
	fails int   // guarded by mu; dials since the last handshake that was answered
}

// dialer connects to a server.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

const (
	firstPause, longestPause = 20 * time.Millisecond, time.Second // between dials that fail
	// holdShare of the time for a handshake bounds how long replies are held back for watches that are not set after all: long
	// enough for a library that gets no processor, and no silence yet.
	holdShare = 3
	// settleTime is for how long replies are held back if there are no watches to set: the library looks whether there are,
	// right after it has started to read, and a watch that the first reply brings would make it read the last zxid beside
	// its writer.
	settleTime = 20 * time.Millisecond
	// opSetWatches is a request's code in the protocol.
	opSetWatches = 101
)

func newLink() *link {
	l := new(link)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// dial is the client library's Dialer. The library tries again at once, so the pause is here.
func (l *link) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	l.drop() // the library leaves it open when its session has expired
	if err := l.pause(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.limit())
	defer cancel()
	sent := time.Now()
	connect := l.secure
	if connect == nil {
		connect = new(net.Dialer).DialContext
	}
	conn, err := connect(ctx, network, addr)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) { // before the dial was done
		err = keyless.Errorf("%w: %w", errTurnedAway, err)
	}
	w, fails := l.dialed(conn, err)
	if err != nil && l.ctx.Err() == nil {
		l.failed(sent, err, fails)
	}
	if w == nil {
		return nil, errors.Join(err, l.ctx.Err())
	}
	return w, nil
}

// dialed takes the connection, unless none is wanted any more.
func (l *link) dialed(conn net.Conn, err error) (w *wire, fails int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails++ // until a handshake is answered
	switch {
	case err != nil:
		return nil, l.fails
	case l.ctx.Err() != nil:
		_ = conn.Close()
		return nil, l.fails
	}
	l.wire = &wire{Conn: conn, link: l, ready: make(chan struct{})}
	return l.wire, l.fails
}

func (l *link) pause() error {
	l.mu.Lock()
	fails := l.fails
	l.mu.Unlock()
	if fails == 0 {
		return l.ctx.Err()
	}
	d := min(firstPause<<min(fails-1, 10), longestPause)
	parts.Pause(l.ctx, d/2+rand.N(d/2))
	return l.ctx.Err()
}

// drop closes the connection; the library dials another.
func (l *link) drop() {
	l.mu.Lock()
	w := l.wire
	l.wire = nil
	l.mu.Unlock()
	if w != nil {
		_ = w.Close()
	}
}

// close closes the connection for good.
func (l *link) close() {
	l.cancel()
	l.drop()
}

// wire is one connection. Its handshake is one packet each way.
type wire struct {
	net.Conn
	link  *link
	ready chan struct{} // closed when replies may pass: watches were set, or none are to be

	mu      sync.Mutex
	sent    time.Time     // guarded by mu; of the handshake
	answer  []byte        // guarded by mu; to the handshake, as far as it was read
	open    bool          // guarded by mu; the handshake was answered
	passing bool          // guarded by mu; ready is closed
	held    time.Duration // guarded by mu; for how long replies are held back at most
}

// Write is called with one whole packet: length, number, code.
func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	switch {
	case w.sent.IsZero():
		w.sent = time.Now()
	case len(b) >= 12 && binary.BigEndian.Uint32(b[8:]) == opSetWatches:
		w.pass()
	}
	w.mu.Unlock()
	n, err := w.Conn.Write(b)
	w.turnedAway(err)
	if err != nil { // the library answers the request with it, as it is
		err = keyless.Errorf("%w: %w", zk.ErrConnectionClosed, err)
	}
	return n, err
}

// pass lets replies through. The caller holds mu.
func (w *wire) pass() {
	if !w.passing {
		w.passing = true
		close(w.ready)
	}
}

// Read reads the handshake's answer on its way to the library, and holds back what comes after it.
func (w *wire) Read(b []byte) (int, error) {
	w.mu.Lock()
	open, passing, held := w.open, w.passing, w.held
	w.mu.Unlock()
	if open && !passing {
		w.hold(held)
	}
	n, err := w.Conn.Read(b)
	switch {
	case !open && n > 0:
		w.note(b[:n])
	case !open && isAlert(err):
		w.refused(err)
	case !open:
		w.turnedAway(err)
	}
	return n, err
}

// errTurnedAway is the end of a connection without an answer to the handshake.
var errTurnedAway = keyless.Errorf("the server closes connections before it answers: it has as many as maxClientCnxns allows an address, or maxCnxns " +
	"in all, or no quorum")

// turnedAway reports that a connection ended before its handshake was answered, unless its time is over.
func (w *wire) turnedAway(err error) {
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	if err != nil && !open && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
		w.refused(keyless.Errorf("%w: %w", errTurnedAway, err))
	}
}

// isAlert reports what a server over TLS says in place of an answer: that it wants a certificate, or another one.
func isAlert(err error) bool {
	op, is := errors.AsType[*net.OpError](err)
	return is && op.Op == "remote error"
}

// refused reports the end of a handshake, which the library drops, as a dial that failed: nothing was carried out.
func (w *wire) refused(err error) {
	w.mu.Lock()
	sent := w.sent
	w.mu.Unlock()
	w.link.mu.Lock()
	fails := w.link.fails
	w.link.mu.Unlock()
	w.link.failed(sent, err, fails)
}

func (w *wire) hold(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-timer.C:
	case <-w.link.ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
}

// note takes a part of the handshake's answer: its length, the protocol's version, the time-out in ms, the session.
func (w *wire) note(b []byte) {
	w.mu.Lock()
	w.answer = append(w.answer, b...)
	if len(w.answer) < 20 || len(w.answer) < 4+int(binary.BigEndian.Uint32(w.answer)) {
		w.mu.Unlock()
		return
	}
	timeout := time.Duration(int32(binary.BigEndian.Uint32(w.answer[8:]))) * time.Millisecond
	session, sent := binary.BigEndian.Uint64(w.answer[12:]), w.sent
	w.open, w.answer = true, nil
	w.held = settleTime
	if w.link.armed() {
		w.held = w.link.limit() / holdShare
	}
	w.mu.Unlock()
	w.link.mu.Lock()
	w.link.fails = 0
	w.link.mu.Unlock()
	if session != 0 {
		w.link.opened(sent, timeout)
	}
}

// SetReadDeadline shortens the library's time for the handshake.
func (w *wire) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	if limit := time.Now().Add(w.link.limit()); !open && (t.IsZero() || t.After(limit)) {
		t = limit
	}
	return w.Conn.SetReadDeadline(t)
}

var _ io.ReadWriteCloser = (*wire)(nil)

// hosts are the servers, in an order of its own for each process. Unlike the library's it leaves the names to the dialer, so that
// they are resolved anew each time. It reports that all have been tried only when no connection is wanted any more, when the
// library would not end otherwise; the pauses between dials are the link's.
type hosts struct {
	link *link

	mu      sync.Mutex
	servers []string // guarded by mu
	next    int      // guarded by mu
}

// Init implements zk.HostProvider. The servers come shuffled.
func (h *hosts) Init(servers []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.servers = servers
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.servers)
}

// Next implements zk.HostProvider.
func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.servers[h.next%len(h.servers)]
	h.next++
	return server, h.link.ctx.Err() != nil
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {}
