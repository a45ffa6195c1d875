package redlock

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/keyless"
)

const (
	// lanes bounds the exchanges under way with one server, and with them its connections. The questions about one key take one
	// lane, in order: those that a release and the next Enter, or two Enters, send must not overtake each other, or the votes
	// of the servers differ. While a lane is busy further questions gather and share the next exchange (group commit).
	lanes = 8
	// maxQueued bounds the questions that wait in a lane: a server that hangs must not collect those of an hour.
	maxQueued = 1024
	// failuresToPause is how many exchanges in a row a server may fail before it is asked less often.
	failuresToPause = 3
	// choreTick is the pause before what a server has still to be told is tried again; not while it is paused.
	choreTick = 50 * time.Millisecond
	// maxChores bounds what it has still to be told: votes of which it is not told expire there.
	maxChores = 1024
)

// node is one server: what is asked of it, and what became of that. Nodes share nothing, so one that hangs delays nobody: its
// questions wait in its own queue, for its own connections, and each round decides without it (rule Q8).
type node struct {
	b        *Backend
	index    int
	name     string         // host:port
	channels *conn.Channels // of all spaces
	tr       conn.Transport
	rtt      atomic.Int64 // round trip, in ns; 0: not known yet
	losses   conn.LossLog

	mu       sync.Mutex           // guards all below
	lanes    [lanes + 1]lane      // the last is for questions about no key
	failures int                  // in a row
	pausedTo time.Time            // it is not asked before; zero: it is
	probe    *ask                 // paused, but this question is to find out; nil: none is
	connects bool                 // a connection is being made in its own time
	why      error                // of the last failure
	chores   map[*ask]*time.Timer // to be tried again
	closed   bool
	wg       sync.WaitGroup // workers, and chores whose timers are armed; Add under mu, unless closed
	dials    sync.WaitGroup // connections that are made in their own time; likewise
}

// lane is the questions about some of the keys.
type lane struct {
	queue []*ask
	busy  bool // a worker sends them
}

// ask is one question to one server.
type ask struct {
	conn.Call
	in    *space // of the lock that it is about; nil: of none
	node  *node
	lane  int
	ttl   time.Duration // of the lock that it is about: it limits one try
	limit time.Duration // for one try, of others
	until time.Time     // zero: one try; else a failure is tried again until then
	sent  time.Time
	done  func(*ask) // called once, with no mutex held
	// needless, if any, is called before it is sent: true: it need not be, and is never done.
	needless func() bool
	// missed, if any, is called after a try that failed and is to be repeated.
	missed func(*ask)
}

var (
	errPaused = keyless.Errorf("it has failed repeatedly and is asked again soon")
	errFull   = keyless.Errorf("too many questions wait for it")
)

// mayBeDone reports that a server may have done what was answered with this error.
func mayBeDone(err error) bool {
	return conn.MayBeDone(err) && !errors.Is(err, errPaused) && !errors.Is(err, errFull) && !errors.Is(err, distributed.ErrClosed)
}

// send asks the server and returns at once. The caller holds no mutex: a question that cannot be sent is done on the spot.
func (n *node) send(k *ask) {
	k.node = n
	if err := n.enqueue(k); err != nil {
		k.sent, k.Err = time.Now(), err
		n.finish(k)
	}
}

func (n *node) enqueue(k *ask) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &n.lanes[k.lane]
	switch {
	case n.closed:
		return distributed.ErrClosed
	case n.paused(time.Now()):
		return keyless.Errorf("%w: %w", errPaused, n.why)
	case len(l.queue) >= maxQueued:
		return errFull
	}
	if !n.pausedTo.IsZero() && n.probe == nil {
		n.probe = k
	}
	l.queue = append(l.queue, k)
	if !l.busy {
		l.busy = true
		n.wg.Go(func() { n.work(l) })
	}
	return nil
}

// paused reports that the server is not to be asked now. When its pause ends, one question finds out. While no majority is
// left without it, it is asked at any time: a pause protects callers from a few bad servers, not from all. The caller holds mu.
func (n *node) paused(now time.Time) bool {
	if n.pausedTo.IsZero() || int(n.b.pauses.Load()) > len(n.b.nodes)-n.b.quorum {
		return false
	}
	return now.Before(n.pausedTo) || n.probe != nil
}

// work sends what is queued in a lane until there is nothing left.
func (n *node) work(l *lane) {
	for {
		n.mu.Lock()
		batch := l.queue
		if len(batch) > conn.MaxBatch {
			batch = batch[:conn.MaxBatch:conn.MaxBatch]
		}
		l.queue = l.queue[len(batch):]
		if len(batch) == 0 {
			l.queue, l.busy = nil, false
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		batch = slices.DeleteFunc(batch, n.dropped)
		if len(batch) > 0 {
			n.exchange(batch)
		}
	}
}

// dropped reports a question that need not be sent any more. If it was to find out whether the server is back, the next one is.
func (n *node) dropped(k *ask) bool {
	if k.needless == nil || !k.needless() {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.probe == k {
		n.probe = nil
	}
	return true
}

// exchange sends a batch in one pipeline, behind a hello about each system that is new to the server: without an answer to that, none about
// its locks counts.
func (n *node) exchange(batch []*ask) {
	limit, rtt := time.Duration(0), time.Duration(n.rtt.Load())
	strangers := n.strangers(batch)
	calls := make([]*conn.Call, 0, len(strangers)+len(batch))
	for _, in := range strangers {
		calls = append(calls, n.b.hello(n, in))
	}
	now := time.Now()
	for _, k := range batch {
		calls, k.sent = append(calls, &k.Call), now
		if k.ttl > 0 {
			k.limit = tryTimeout(k.ttl, rtt)
		}
		limit = max(limit, k.limit)
	}
	n.tr.Do(conn.Within(n.b.ctx, limit), calls...)
	for i, in := range strangers {
		err := calls[i].Err
		if err == nil {
			in.vouched.Or(1 << n.index)
			err = n.b.met(n, calls[i].Reply, in)
		}
		for _, k := range batch {
			if k.in == in && err != nil {
				k.Err = err
			}
		}
	}
	n.judge(batch, time.Since(now))
	for _, k := range batch {
		n.finish(k)
	}
}

// took notes how long an answer took. The first ones may have had to make a connection, so less is believed at once.
func (n *node) took(d time.Duration) {
	old := n.rtt.Load()
	if old > 0 && int64(d) > old {
		d = time.Duration(old + (int64(d)-old)/rttWeight)
	}
	n.rtt.Store(max(int64(d), 1)) // of two that come at once either wins: both are measurements
}

// judge notes whether the server is there. Any answer says so.
func (n *node) judge(batch []*ask, took time.Duration) {
	there := slices.ContainsFunc(batch, func(k *ask) bool { return conn.Answered(k.Err) })
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Contains(batch, n.probe) {
		n.probe = nil
	}
	was := !n.pausedTo.IsZero()
	if there {
		n.took(took)
		n.failures, n.pausedTo, n.probe = 0, time.Time{}, nil
		if was {
			n.b.pauses.Add(-1)
			n.b.log.Info("redlock: a server answers again", "server", n.name)
		}
		return
	}
	if n.b.ctx.Err() != nil {
		return
	}
	n.why = batch[0].Err
	n.connect()
	if n.failures++; n.failures < failuresToPause {
		return
	}
	n.pausedTo = time.Now().Add(backoff(n.failures - failuresToPause))
	if !was {
		n.b.pauses.Add(1)
		n.b.log.Warn("redlock: a server does not answer", "server", n.name, "error", keyless.Of(n.why))
	}
}

// connect makes a connection in its own time when a try has failed: over a long network that takes longer than a try, and the next try
// would begin anew. It also tells how long a round trip takes, for a server that has never answered in time. The caller holds mu.
func (n *node) connect() {
	if n.connects || n.closed {
		return
	}
	n.connects = true
	n.dials.Go(func() {
		ctx := conn.Within(n.b.ctx, connectTimeout)
		if _, err := n.tr.Ping(ctx, ""); err == nil {
			if rtt, err := n.tr.Ping(ctx, ""); err == nil {
				n.took(rtt)
			}
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.connects = false
	})
}

// finish passes the outcome on, or puts a chore back for another try.
func (n *node) finish(k *ask) {
	if k.Err != nil && !k.until.IsZero() {
		if k.missed != nil {
			k.missed(k)
		}
		if n.again(k) {
			return
		}
	}
	k.done(k)
}

// again keeps a chore until the server may be asked again. It reports false if it is not to be.
func (n *node) again(k *ask) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := time.Until(k.until)
	if n.closed || len(n.chores) >= maxChores || left <= 0 {
		return false
	}
	n.wg.Add(1)
	pause := jittered(max(choreTick, time.Until(n.pausedTo)))
	n.chores[k] = time.AfterFunc(min(pause, left), func() { n.retry(k) })
	return true
}

// retry sends a chore again, or gives it up when its time is over, with the error of its last try. Of several whose pause has ended one finds
// out whether the server is back, and the others wait.
func (n *node) retry(k *ask) {
	defer n.wg.Done()
	n.mu.Lock()
	over, closed, rests := !time.Now().Before(k.until), n.closed, n.paused(time.Now())
	delete(n.chores, k)
	n.mu.Unlock()
	switch {
	case closed: // close has taken it
	case over, rests && !n.again(k):
		k.done(k)
	case !rests:
		n.send(k)
	}
}

// close lets what is under way end, and refuses what comes. It waits for both.
func (n *node) close() {
	n.mu.Lock()
	n.closed = true
	var all []*ask
	for i := range n.lanes {
		all = append(all, n.lanes[i].queue...)
		n.lanes[i].queue = nil
	}
	for k, timer := range n.chores {
		all = append(all, k)
		if timer.Stop() {
			n.wg.Done()
		}
	}
	n.mu.Unlock()
	for _, k := range all {
		k.Err = distributed.ErrClosed
		k.done(k)
	}
	n.wg.Wait()
	_ = n.tr.Close() // which ends what is dialed
	n.dials.Wait()
}

// idle reports that nothing is under way or to be tried again.
func (n *node) idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	busy := slices.ContainsFunc(n.lanes[:], func(l lane) bool { return l.busy })
	return !busy && len(n.chores) == 0
}
