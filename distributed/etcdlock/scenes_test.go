package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testscope"
)

var update = flag.Bool("update", false, "write testdata/scenes.txt anew")

const (
	scenesFile = "testdata/scenes.txt"
	longScene  = "(long)" // ends its name
)

// What is sent to etcd, scene by scene: in the file a scene begins with #, a line that is not indented is a step, and indented are what
// it returns and the requests that it causes. A process is a letter, with a Backend of its own; a handle (a, a2) is a lease or a place of
// the process of its letter. So a change of what is on the wire is seen, and one that should change nothing there proves it.
func TestScenes(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile(scenesFile)
	require.NoError(t, err)
	server := etcdtest.Start(t) // its own: revisions tell of nobody else
	var out strings.Builder
	for _, text := range strings.SplitAfter(string(file), "\n\n") {
		name, script, _ := strings.Cut(text, "\n")
		t.Run(strings.TrimPrefix(name, "# "), func(t *testing.T) {
			if strings.HasSuffix(name, longScene) && !*update {
				testscope.Long(t, "waits for looks, for keepalives, or for an expiry")
			}
			out.WriteString(name + "\n")
			s := &stage{
				t: t, addr: server.Addr, prefix: newPrefix(), processes: map[string]*process{},
				leases: map[string]distributed.Lease{}, places: map[string]distributed.Place{},
				names: map[string]string{}, revisions: map[int64]string{}, seen: map[int64]bool{},
				news: make(chan struct{}, 1000),
			}
			s.play(strings.Split(strings.TrimSpace(script), "\n"), &out)
		})
		out.WriteString("\n")
	}
	if *update {
		require.NoError(t, os.WriteFile(scenesFile, []byte(strings.TrimSpace(out.String())+"\n"), 0o600))
	}
}

// stage is where a scene is played.
type stage struct {
	t            *testing.T
	addr, prefix string
	leases       map[string]distributed.Lease
	places       map[string]distributed.Place
	news         chan struct{} // one for each line

	mu        sync.Mutex // guards all below
	processes map[string]*process
	lines     []string          // of the step; they begin with the letter of the process
	once      bool              // repeated lines are left out
	names     map[string]string // of keys
	revisions map[int64]string
	seen      map[int64]bool     // revisions, in answers
	cancel    context.CancelFunc // of the step
}

// process is a Backend and its client.
type process struct {
	*Backend
	s       *stage
	letter  string
	mute    bool // it is not recorded; guarded by s.mu, as all below
	beats   bool // its keepalives are
	faults  []string
	held    *pb.TxnRequest
	session int64
}

func (s *stage) play(script []string, out *strings.Builder) {
	for len(script) > 0 {
		step, want := script[0], []string(nil)
		for script = script[1:]; len(script) > 0 && strings.HasPrefix(script[0], "  "); script = script[1:] {
			want = append(want, script[0])
		}
		words := strings.Fields(step)
		got := s.record(words, len(want))
		out.WriteString(step + "\n")
		for _, line := range got {
			out.WriteString(line + "\n")
		}
		if !*update {
			require.Equal(s.t, strings.Join(want, "\n"), strings.Join(got, "\n"), step)
		}
	}
	for _, p := range s.processes {
		p.silence(true)
	}
}

// record takes a step, and returns what it causes. It waits for so many lines, or, if they are to be written, until no more come.
func (s *stage) record(words []string, want int) []string {
	p, await := s.process(words[1][:1]), words[0] == "await"
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	s.mu.Lock()
	s.lines, s.once, s.cancel, p.beats = nil, await, cancel, await
	s.mu.Unlock()
	if answer := s.step(ctx, p, words[0], words[1], words[2:]); answer != "" {
		s.say("", "= "+answer)
	}
	pause := patience
	switch {
	case await:
		want, _ = strconv.Atoi(words[2])
	case *update:
		want, pause = cap(s.news), 300*time.Millisecond
	}
	for s.said() < want {
		select {
		case <-s.news:
		case <-time.After(pause):
			want = 0
		}
	}
	for _, one := range s.processes { // what was answered is known, too
		asker{b: one.Backend}.rest()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.mute = await
	// What several processes send, and what the watches, comes in any order; what is awaited too.
	slices.SortStableFunc(s.lines, func(x, y string) int {
		return cmp.Or(cmp.Compare(x[:3], y[:3]), cmp.Compare(strings.Count(x, "watch"), strings.Count(y, "watch")))
	})
	if await {
		slices.Sort(s.lines)
	}
	return s.lines
}

func (s *stage) said() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines)
}

func (s *stage) say(letter, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line = fmt.Sprintf("  %1s %s", letter, line); !s.once || !slices.Contains(s.lines, line) {
		s.lines = append(s.lines, line)
		s.news <- struct{}{}
	}
}

func (s *stage) step(ctx context.Context, p *process, verb, handle string, args []string) string {
	l, place := s.leases[handle], s.places[handle]
	switch verb {
	case "enter", "warm":
		return s.enter(ctx, p, verb, handle, args)
	case "granted":
		if l = granted(s.t, place); l == nil {
			return "lost"
		}
		s.leases[handle] = l
		return "lease"
	case "leave":
		return outcome(place.Leave(ctx))
	case "release":
		return outcome(l.Release(ctx))
	case "drop":
		return fmt.Sprint("done ", l.(distributed.AsyncLease).StartRelease())
	case "refill":
		return outcome(l.Refill(ctx))
	case "downgrade":
		return outcome(l.(distributed.Downgrader).Downgrade(ctx))
	case "draw":
		for range blockSize / 2 {
			_, ok := l.NextFence()
			require.True(s.t, ok)
		}
	case "abandon":
		l.Abandon()
	case "lost":
		lost(s.t, l)
	case "contended", "quiet":
		require.Eventually(s.t, func() bool { return l.Contended() == (verb == "contended") }, patience, time.Millisecond)
	case "break":
		found, err := p.Inspect(ctx, "k")
		if err == nil {
			_, err = p.Break(ctx, found, "me", "a test")
		}
		return outcome(err)
	case "close":
		return outcome(p.Close())
	case "fault":
		s.mu.Lock()
		defer s.mu.Unlock()
		p.faults = append(p.faults, args...)
	case "deliver", "delete", "revoke":
		return s.behind(ctx, p, verb)
	case "await":
	default:
		require.Fail(s.t, "no such step", verb)
	}
	return ""
}

func (s *stage) enter(ctx context.Context, p *process, verb, handle string, args []string) string {
	req := distributed.Request{Key: "k", Instance: p.letter, TTL: long}
	for _, arg := range args {
		switch what, value, _ := strings.Cut(arg, "="); what {
		case "shared":
			req.Mode = distributed.Shared
		case "permit":
			req.Mode = distributed.Shared
			req.Limit, _ = strconv.Atoi(value)
		case "nowait":
			req.NoWait = true
		case "prev":
			req.Prev = s.leases[value]
		case "ttl":
			req.TTL, _ = time.ParseDuration(value)
		}
	}
	if verb == "warm" {
		req.Key = "warm"
		p.silence(true)
		release(s.t, asker{s.t, p.Backend, "warm"}.lease(p.letter, lasting(req.TTL)))
		p.silence(false)
		return ""
	}
	l, place, err := p.Enter(ctx, req)
	s.leases[handle], s.places[handle] = l, place
	switch {
	case l != nil:
		return "lease"
	case place != nil:
		return "place"
	}
	return outcome(err)
}

// behind is what happens behind the back of a process: what was held up is carried out, its oldest key is deleted, its session revoked.
func (s *stage) behind(ctx context.Context, p *process, verb string) string {
	c := plainClient(s.t, s.addr)
	switch verb {
	case "deliver":
		got, err := pb.NewKVClient(c.ActiveConnection()).Txn(ctx, p.held)
		require.NoError(s.t, err)
		return fmt.Sprint("succeeded ", got.Succeeded)
	case "delete":
		got, err := c.Get(ctx, p.dirOf("k"), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		require.NoError(s.t, err)
		i := slices.IndexFunc(got.Kvs, func(kv *pbKV) bool { return tagIn(string(kv.Key)) == tagOf(p.letter) })
		_, err = c.Delete(ctx, string(got.Kvs[i].Key))
		require.NoError(s.t, err)
	default:
		_, err := c.Revoke(ctx, clientv3.LeaseID(p.session))
		require.NoError(s.t, err)
	}
	return ""
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, distributed.ErrHeld):
		return err.Error()
	}
	for text, is := range map[string]error{
		"lost": distributed.ErrLeaseLost, "closed": distributed.ErrClosed, "not held": distributed.ErrNotHeld, "canceled": context.Canceled,
	} {
		if errors.Is(err, is) {
			return text
		}
	}
	return "failed"
}

// silence has the process not recorded.
func (p *process) silence(mute bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.mute = mute
}

// process returns the one with this letter.
func (s *stage) process(letter string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[letter]
	if p == nil {
		p = &process{s: s, letter: letter}
		c, err := clientv3.New(clientv3.Config{
			Endpoints: []string{s.addr}, Logger: zap.NewNop(),
			DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(p.unary), grpc.WithChainStreamInterceptor(p.stream)},
		})
		require.NoError(s.t, err)
		s.t.Cleanup(func() { require.NoError(s.t, c.Close()) })
		p.Backend, err = New(c, WithPrefix(s.prefix))
		require.NoError(s.t, err)
		s.t.Cleanup(func() { require.NoError(s.t, p.Close()) })
		s.processes[letter] = p
	}
	return p
}

func (p *process) unary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	text, quiet := p.request(req)
	fault := ""
	p.s.mu.Lock()
	if !quiet && !p.mute && len(p.faults) > 0 {
		fault, p.faults = p.faults[0], p.faults[1:]
	}
	p.s.mu.Unlock()
	for _, o := range opts {
		if to, is := o.(grpc.PeerCallOption); is && fault != "" {
			to.PeerAddr.Addr = new(net.TCPAddr) // it was sent
		}
	}
	var err error
	switch fault {
	case "", "answer", "none":
		err = next(ctx, method, req, reply, cc, opts...)
	case "hold":
		p.s.mu.Lock()
		p.held = req.(*pb.TxnRequest)
		p.s.mu.Unlock()
	case "refuse":
		err = status.Error(codes.PermissionDenied, "permission denied")
	case "hang": // until the caller has gone
		p.s.cancel()
		<-ctx.Done()
		err = status.FromContextError(ctx.Err()).Err()
	}
	answer := p.answer(reply, err)
	if fault != "" && fault != "none" {
		answer = "(" + fault + ")"
	}
	if !quiet {
		p.say(text + " -> " + answer)
	}
	if err == nil && (fault == "answer" || fault == "hold" || fault == "lose") {
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
	if got, is := reply.(*pb.LeaseGrantResponse); is {
		p.session = got.ID
	}
	return "done"
}

func (p *process) say(text string) {
	p.s.mu.Lock()
	mute := p.mute
	p.s.mu.Unlock()
	if !mute {
		p.s.say(p.letter, text)
	}
}

// watched is a stream whose requests are recorded: watches when they have begun.
type watched struct {
	grpc.ClientStream
	p       *process
	watches *sync.Map // texts, by id
}

func (p *process) stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := next(ctx, desc, cc, method, opts...)
	return watched{s, p, new(sync.Map)}, err
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
	if got, is := m.(*pb.WatchResponse); err == nil && is && got.Created {
		if text, known := w.watches.Load(got.WatchId); known {
			w.p.say(text.(string))
		}
	}
	return err
}
