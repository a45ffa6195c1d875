package etcdlock

import (
	"context"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/parts"
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testlocker"
)

var update = flag.Bool("update", false, "write testdata/scenes.txt anew")

const scenesFile = "testdata/scenes.txt"

// What is sent to etcd: see testlocker.Scenes.
func TestScenes(t *testing.T) {
	if race.Enabled {
		t.Skip("requests that are due at a time come before those that answer others; make unraced runs it")
	}
	t.Parallel()
	server := etcdtest.Start(t) // its own: revisions tell of nobody else
	testlocker.Scenes{
		File: scenesFile, Update: *update, TTL: long, Draws: blockSize / 2,
		Stage: func(one *testlocker.Scene) testlocker.Stage {
			return &stage{
				Scene: one, addr: server.Addr, prefix: newPrefix(), processes: map[string]*process{},
				names: map[string]string{}, revisions: map[int64]string{}, seen: map[int64]bool{},
			}
		},
	}.Run(t)
}

// stage is where a scene is played.
type stage struct {
	*testlocker.Scene
	addr, prefix string

	mu        sync.Mutex // guards all below
	processes map[string]*process
	names     map[string]string // of keys
	revisions map[int64]string
	seen      map[int64]bool // revisions, in answers
}

func (*stage) Key(name string) string                      { return name }
func (s *stage) Process(letter string) distributed.Backend { return s.process(letter).Backend }

// Arrange implements testlocker.Arranger: the watches come in any order.
func (*stage) Arrange(lines []string) {
	testlocker.ByRank(lines, func(line string) int { return strings.Count(line, "watch") })
}

func (s *stage) Settle() {
	for _, one := range s.processes {
		rest(one.Backend)
	}
}

// process is a Backend and its client.
type process struct {
	*Backend
	s       *stage
	letter  string
	faults  []string // guarded by s.mu, as all below
	held    *pb.TxnRequest
	streams int // so many were opened
	muted   int // the first so many say nothing
}

func (s *stage) Step(ctx context.Context, handle, verb string, args []string) string {
	p := s.process(handle[:1])
	switch verb {
	case "fault":
		s.mu.Lock()
		defer s.mu.Unlock()
		p.faults = append(p.faults, args...)
	case "mute": // the streams of today
		s.mu.Lock()
		defer s.mu.Unlock()
		p.muted = p.streams
	case "deliver", "delete", "revoke", "guard":
		return s.behind(ctx, p, verb)
	default:
		require.Fail(s.T, "no such step", verb)
	}
	return ""
}

// behind is what happens behind the back of a process: what was held up is carried out, its oldest key is deleted, its session revoked, or its
// guard written.
func (s *stage) behind(ctx context.Context, p *process, verb string) string {
	c := plainClient(s.T, s.addr)
	switch verb {
	case "deliver":
		got, err := pb.NewKVClient(c.ActiveConnection()).Txn(ctx, p.held)
		require.NoError(s.T, err)
		return fmt.Sprint("succeeded ", got.Succeeded)
	case "delete":
		got, err := c.Get(ctx, p.dirOf("k"), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		require.NoError(s.T, err)
		i := slices.IndexFunc(got.Kvs, func(kv *pbKV) bool { return tagIn(string(kv.Key)) == parts.Tag(p.letter) })
		_, err = c.Delete(ctx, string(got.Kvs[i].Key))
		require.NoError(s.T, err)
	case "guard":
		one := p.sessions.All()[0]
		_, err := c.Put(ctx, one.guardKey(), "", clientv3.WithLease(clientv3.LeaseID(one.lease())))
		require.NoError(s.T, err)
	default:
		_, err := c.Revoke(ctx, clientv3.LeaseID(p.sessions.All()[0].lease()))
		require.NoError(s.T, err)
	}
	return ""
}

// process returns the one with this letter.
func (s *stage) process(letter string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[letter]
	if p == nil {
		p = &process{s: s, letter: letter}
		p.Backend = through(s.T, s.addr, s.prefix, grpc.WithChainUnaryInterceptor(p.unary), grpc.WithChainStreamInterceptor(p.stream))
		s.processes[letter] = p
	}
	return p
}

func (p *process) unary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	text, quiet := p.request(req)
	fault, muted := "", p.s.Muted(p.letter)
	p.s.mu.Lock()
	if !quiet && !muted && len(p.faults) > 0 {
		fault, p.faults = p.faults[0], p.faults[1:]
	}
	p.s.mu.Unlock()
	for _, o := range opts {
		if to, is := o.(grpc.PeerCallOption); is && fault != "" {
			to.PeerAddr.Addr = new(net.TCPAddr) // it was sent
		}
	}
	var err error
	answered := func(string) {}
	if !quiet {
		answered = p.s.Sent(p.letter)
	}
	switch fault {
	case "", "answer", "none":
		err = next(ctx, method, req, reply, cc, opts...)
	case "taken": // a copy of the process has the name
		_, err = plainClient(p.s.T, p.s.addr).Put(ctx, string(req.(*pb.TxnRequest).Compare[0].Key), valueOf("copy"))
		require.NoError(p.s.T, err)
		fallthrough
	case "hold":
		p.s.mu.Lock()
		p.held = req.(*pb.TxnRequest)
		p.s.mu.Unlock()
	case "refuse":
		err = status.Error(codes.PermissionDenied, "permission denied")
	case "hang": // until the caller has gone
		p.s.Go()
		<-ctx.Done()
		err = status.FromContextError(ctx.Err()).Err()
	}
	answer := p.answer(reply, err)
	if fault != "" && fault != "none" {
		answer = "(" + fault + ")"
	}
	answered(text + " -> " + answer)
	if err == nil && (fault == "answer" || fault == "taken" || fault == "hold" || fault == "lose") {
		err = status.Error(codes.Unavailable, "lost")
	}
	return err
}

// answer reads one, and gives its revision a name.
func (p *process) answer(reply any, err error) string {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	switch got, _ := reply.(*pb.TxnResponse); {
	case err != nil:
		return status.Code(err).String()
	case got != nil && got.Header != nil:
		p.s.seen[got.Header.Revision] = true
		return map[bool]string{true: "yes", false: "no"}[got.Succeeded]
	}
	return "done"
}

func (p *process) say(text string) { p.s.Say(p.letter, text) }

// watched is a stream whose requests are recorded: watches when they have begun.
type watched struct {
	grpc.ClientStream
	p       *process
	number  int
	watches *sync.Map // texts, by id
}

func (p *process) stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := next(ctx, desc, cc, method, opts...)
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.streams++
	return watched{s, p, p.streams, new(sync.Map)}, err
}

func (w watched) SendMsg(m any) error {
	text, quiet := w.p.request(m)
	req, _ := m.(*pb.WatchRequest)
	_, known := w.watches.Load(req.GetCancelRequest().GetWatchId())
	switch {
	case req.GetCreateRequest() != nil && !quiet:
		w.watches.Store(req.GetCreateRequest().WatchId, text)
	case !quiet && (req == nil || known):
		w.p.say(text)
	}
	return w.ClientStream.SendMsg(m)
}

func (w watched) RecvMsg(m any) error {
	err := w.ClientStream.RecvMsg(m)
	for err == nil && w.isMute(m) {
		err = w.ClientStream.RecvMsg(m)
	}
	if got, is := m.(*pb.WatchResponse); err == nil && is && got.Created {
		if text, known := w.watches.Load(got.WatchId); known {
			w.p.say(text.(string))
		}
	}
	return err
}

func (w watched) isMute(m any) bool {
	_, is := m.(*pb.WatchResponse)
	w.p.s.mu.Lock()
	defer w.p.s.mu.Unlock()
	return is && w.number <= w.p.muted
}
