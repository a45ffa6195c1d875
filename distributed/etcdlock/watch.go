package etcdlock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/parts"
)

// watches are all watches of a Backend, over one stream: the Watcher of the client has a goroutine for each. One task opens
// the stream, sends what is to be sent, and opens another one when it breaks or falls silent; all watches then go on at
// the revision after the last that they have seen.
type watches struct {
	b       *Backend
	heard   atomic.Int64 // when the stream said something, in nanoseconds since the base of the Backend
	events  atomic.Int64 // messages with events, for tests
	streams atomic.Int64 // that were opened, for tests

	mu     sync.Mutex
	all    map[int64]*watch   // guarded by mu; by their ids
	nextID int64              // guarded by mu; of the next one of the stream
	out    []*pb.WatchRequest // guarded by mu; to be sent
	wake   chan struct{}      // guarded by mu, set once, when the task starts; capacity 1

	refused bool // the latest answer to a stream or a watch was a refusal; only the task and its reader, one at a time, use it
}

// watch is one of them. Its id is its number in the stream, from 0. A server gives a watch the id that it asks for, and the proxy of etcd
// counts them likewise by itself. One that the server has not confirmed is none: its holder looks each T/3 (rule E3).
//
// A server delivers at once what is watched from now on. A watch from a revision in the past is first put beside those, and
// catches up at the next of its rounds, every 100 ms. A cluster that is busy is past every revision that an answer has
// named. So a new watch is one from now on, the answer to it says what revision that is, and its owner looks if that is
// beyond the one that it has seen (rule E3).
type watch struct {
	c   *claim
	req *pb.WatchCreateRequest

	// Guarded by the mutex of watches:
	id        int64
	sent      time.Time
	fresh     bool  // it is to begin now, which was not answered yet
	confirmed bool  // by this stream
	late      bool  // it was not confirmed in time, and its owner knows
	next      int64 // the revision to go on at
}

const (
	// streamBeat is how often a stream that says nothing is asked for a sign of life, and silentBeats how many may go without
	// one.
	streamBeat  = time.Second
	silentBeats = 3
	// reopenPause is that between two tries to open a stream, refusedPause that after two refusals: with every stream the client logs in,
	// and all owners of watches look.
	reopenPause  = 50 * time.Millisecond
	refusedPause = silentBeats * streamBeat
)

// add sets a watch for what happens after the revision that its owner has seen. Events go to c.event, and what may have happened
// before the watch began to c.missed, from any goroutine and with no mutex held.
func (ws *watches) add(c *claim, seen int64, req *pb.WatchCreateRequest) *watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := &watch{c: c, req: req, fresh: true, next: seen + 1}
	ws.number(w)
	ws.send(createWatch(req))
	return w
}

// number gives a watch the next id. The caller holds mu, and sends it before it lets go: requests go out in the order of their ids.
func (ws *watches) number(w *watch) {
	if ws.all == nil {
		ws.all = map[int64]*watch{}
	}
	w.id, w.req.WatchId, w.sent = ws.nextID, ws.nextID, time.Now()
	ws.all[w.id] = w
	ws.nextID++
}

// works reports that a watch was confirmed.
func (ws *watches) works(w *watch) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return w.confirmed
}

// remove gives a watch up. Events that are on their way find it gone.
func (ws *watches) remove(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.all[w.id] == w {
		delete(ws.all, w.id)
		ws.send(cancelWatch(w.id))
	}
}

func createWatch(req *pb.WatchCreateRequest) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: req}}
}

func cancelWatch(id int64) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}}
}

// send queues a request. The caller holds mu.
func (ws *watches) send(req *pb.WatchRequest) {
	ws.out = append(ws.out, req)
	if ws.wake != nil {
		select {
		case ws.wake <- struct{}{}:
		default:
		}
	}
}

// start starts the task, with the first session: the first watch should not wait for a stream.
func (ws *watches) start() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.wake == nil {
		ws.wake = make(chan struct{}, 1)
		ws.b.engine.Go(ws.run)
	}
}

func (ws *watches) run() {
	for ws.b.ctx.Err() == nil {
		again := ws.refused
		if ws.stream(); again && ws.refused {
			parts.Pause(ws.b.ctx, refusedPause)
		} else {
			parts.Pause(ws.b.ctx, reopenPause)
		}
	}
}

// refuse takes a refusal: of a log-in, or of a watch by a stream whose token has become invalid. The next stream has a new one; meanwhile,
// and after each further refusal, all owners look instead (rule E3). It is logged once.
func (ws *watches) refuse(reason string) {
	if !ws.refused {
		ws.b.set.log.Warn("etcdlock: watches are refused, hand-overs are found by polling", "reason", reason)
	}
	ws.refused = true
	ws.mu.Lock()
	all := slices.Collect(maps.Values(ws.all))
	ws.mu.Unlock()
	for _, w := range all {
		w.c.missed(w)
	}
}

// accept takes a watch that was not refused.
func (ws *watches) accept() {
	if ws.refused {
		ws.b.set.log.Info("etcdlock: watches are accepted again")
	}
	ws.refused = false
}

// stream opens a stream and works with it until it breaks.
func (ws *watches) stream() {
	ctx, cancel := context.WithCancel(ws.b.ctx)
	defer cancel()
	conn, err := ws.b.connect(ctx)
	if err != nil {
		return
	}
	timer := time.AfterFunc(silentBeats*streamBeat, cancel)
	stream, err := pb.NewWatchClient(conn).Watch(clientv3.WithRequireLeader(ctx))
	if err = explain(ctx, "watch", err, false); errors.Is(err, distributed.ErrRefused) {
		ws.refuse(err.Error())
	}
	if err != nil || !timer.Stop() {
		return
	}
	ws.streams.Add(1)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer cancel()
		ws.read(stream)
	})
	ws.write(ctx, stream)
	cancel()
	reader.Wait()
}

// write sends what is to be sent, all watches first, until the stream breaks.
func (ws *watches) write(ctx context.Context, stream pb.Watch_WatchClient) {
	ws.hear()
	requests := ws.restart()
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for {
		for _, req := range requests {
			if stream.Send(req) != nil {
				return
			}
		}
		requests = nil
		select {
		case <-ws.wake:
			requests = ws.take()
		case <-beat.C:
			switch silence := time.Since(ws.b.base) - time.Duration(ws.heard.Load()); {
			case silence > silentBeats*streamBeat:
				return
			case silence > streamBeat/2:
				ws.askForSign(silence > streamBeat)
			}
			ws.missUnconfirmed()
		case <-ctx.Done():
			return
		}
	}
}

func (ws *watches) hear() { ws.heard.Store(int64(time.Since(ws.b.base))) }

// askForSign asks a stream that has watches for a sign of life: its progress. The proxy of etcd answers no such request, so one that was not
// answered is followed by a watch that is given up at once.
func (ws *watches) askForSign(again bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var one *watch
	for _, one = range ws.all {
		break
	}
	switch {
	case one == nil:
		ws.hear() // there is nothing to be heard
	case again:
		nothing := []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT, pb.WatchCreateRequest_NODELETE}
		ws.send(createWatch(&pb.WatchCreateRequest{Key: one.req.Key, WatchId: ws.nextID, Filters: nothing}))
		ws.send(cancelWatch(ws.nextID))
		ws.nextID++
	default:
		ws.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	}
}

// missUnconfirmed has the owners of watches look that this stream has not confirmed in time.
func (ws *watches) missUnconfirmed() {
	var late []*watch
	ws.mu.Lock()
	for _, w := range ws.all {
		if !w.confirmed && !w.late && time.Since(w.sent) > streamBeat {
			w.late = true
			late = append(late, w)
		}
	}
	ws.mu.Unlock()
	for _, w := range late {
		w.c.missed(w)
	}
}

// restart returns the requests that set all watches anew, in place of what was to be sent.
func (ws *watches) restart() []*pb.WatchRequest {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	before := ws.all
	ws.out, ws.all, ws.nextID = nil, nil, 0
	var all []*pb.WatchRequest
	for _, w := range before {
		w.req.StartRevision, w.fresh, w.confirmed, w.late = w.next, false, false, false
		ws.number(w)
		all = append(all, createWatch(w.req))
	}
	return all
}

func (ws *watches) take() []*pb.WatchRequest {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	out := ws.out
	ws.out = nil
	return out
}

// read passes events on until the stream breaks.
func (ws *watches) read(stream pb.Watch_WatchClient) {
	for {
		got, err := stream.Recv()
		if err != nil {
			return
		}
		ws.hear()
		switch w, what := ws.took(got); what {
		case watchFired:
			w.c.event(w, got.Events)
		case watchMissed:
			w.c.missed(w)
		case watchRefused:
			ws.refuse(got.CancelReason)
			return // the stream is opened anew
		}
		if got.Created {
			ws.accept()
		}
	}
}

type watchNews uint8

const (
	watchQuiet   watchNews = iota // nothing for the owner
	watchFired                    // events; none: the revision to go on at was compacted
	watchMissed                   // there may have been events before the watch began
	watchRefused                  // this watch, or one that is not named
)

// took returns the watch that a message is for, and what is to be passed on. A server gives a watch up when the revision at which
// it is to go on has been compacted. It also does when it refuses it, and then it may not say which.
func (ws *watches) took(got *pb.WatchResponse) (*watch, watchNews) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.all[got.WatchId]
	switch {
	case got.Canceled && got.CancelReason != "" && got.CompactRevision == 0:
		return nil, watchRefused
	case w == nil:
		return nil, watchQuiet
	case got.Canceled:
		delete(ws.all, w.id)
		got.Events = nil
		return w, watchFired
	case got.Created:
		missed := w.fresh && got.Header.Revision >= w.next
		w.fresh, w.confirmed = false, true
		if missed {
			return w, watchMissed
		}
		return nil, watchQuiet
	}
	for _, e := range got.Events {
		if string(e.Kv.Key) != string(w.req.Key) && (string(e.Kv.Key) < string(w.req.Key) || string(e.Kv.Key) >= string(w.req.RangeEnd)) {
			got.CancelReason = "the events of one watch come with the id of another"
			return nil, watchRefused
		}
	}
	// A member that lags begins before what the owner has seen: with an earlier use of a name, perhaps.
	got.Events = slices.DeleteFunc(got.Events, func(e *mvccpb.Event) bool { return e.Kv.ModRevision < w.next })
	if len(got.Events) == 0 {
		return nil, watchQuiet
	}
	ws.events.Add(1)
	w.next = got.Header.Revision + 1
	return w, watchFired
}

// ids returns the watches there are, for tests.
func (ws *watches) ids() []int64 {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Sorted(maps.Keys(ws.all))
}
