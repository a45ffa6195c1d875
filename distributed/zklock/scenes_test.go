package zklock

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/parts"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/zktest"
)

const scenesFile = "testdata/scenes.txt"

var update = flag.Bool("update", false, "write "+scenesFile+" anew")

// TestScenes plays the scenes of the file over a real server, and compares what the first backend sends, and what its caller gets, with
// what the file says behind each step. A busy machine may be late: a scene that differs is played again, at a slower pace.
func TestScenes(t *testing.T) {
	t.Parallel()
	zktest.Shared(t)
	text, err := os.ReadFile(scenesFile)
	require.NoError(t, err)
	all := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	t.Run("all", func(t *testing.T) {
		for i, want := range all {
			title, _, _ := strings.Cut(want, "\n")
			t.Run(strings.TrimPrefix(title, "# "), func(t *testing.T) {
				t.Parallel()
				played := ""
				for pause := 50 * time.Millisecond; pause < time.Second; pause *= 2 {
					if one := play(t, pause, want); one == want {
						return
					} else if played == "" || len(one) < len(played) { // has fewer of the syncs that keep the session alive
						played = one
					}
				}
				if all[i] = played; !*update {
					require.Equal(t, want, played)
				}
			})
		}
	})
	if *update {
		require.NoError(t, os.WriteFile(scenesFile, []byte(strings.Join(all, "\n\n")+"\n"), 0o600))
	}
}

// scene is one that is being played. Its two backends are two processes, and only the first is recorded: the instances of the other begin
// with z.
type scene struct {
	t        *testing.T
	root     string
	pause    time.Duration // how long nothing has to happen at the end of a step
	proxy    *zktest.Proxy
	b, other *Backend
	held     map[string]any // leases and places by their names
	found    distributed.Inspection
	stolen   bool // a session was, so that there are connections which nobody has asked for

	mu     sync.Mutex // guards all below
	on     bool
	links  map[*testproc.Link][]byte // what is left of the pieces; nil: the first packet, which has no code, is not over
	sent   []string
	latest time.Time
	names  map[string]string // of requests' ids
	counts map[string]int    // ids of each instance
}

// play returns the scene as it was played: a line for each step, as "STEP => ANSWER: REQUEST, REQUEST".
func play(t *testing.T, pause time.Duration, script string) string {
	s := &scene{
		t: t, root: newRoot(), pause: pause, proxy: zktest.NewProxy(t, zktest.Shared(t).Addr), held: map[string]any{},
		links: map[*testproc.Link][]byte{}, names: map[string]string{}, counts: map[string]int{},
	}
	s.proxy.SetFilters(s.record, nil)
	s.other = open(t, zktest.Shared(t).Addr, s.root)
	var out []string
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		step, want, _ := strings.Cut(line, " => ")
		if strings.HasPrefix(line, "#") {
			out = append(out, line)
			continue
		}
		s.mu.Lock()
		s.sent, s.latest = nil, time.Now()
		s.mu.Unlock()
		answer := s.step(strings.Fields(step))
		sent := s.settled(strings.Contains(want, "sync"))
		if strings.HasPrefix(step, "expire") { // its owner may have taken it back some times
			sent = ""
		}
		out = append(out, strings.TrimSuffix(step+" => "+answer+sent, " => "))
	}
	_, _ = s.b.Close(), s.other.Close()
	return strings.Join(out, "\n")
}

// settled waits until nothing more is sent and returns what was. Reads in a row are in any order. Without syncs, those are left out that
// keep the session alive.
func (s *scene) settled(syncs bool) string {
	for quiet := time.Duration(0); quiet < s.pause; time.Sleep(s.pause - quiet) {
		s.mu.Lock()
		quiet = min(time.Since(s.latest), s.pause)
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = slices.DeleteFunc(s.sent, func(one string) bool {
		return one == "sync" && !syncs && !*update || one == "connect" && s.stolen
	})
	for i, from := 0, 0; i <= len(s.sent); i++ {
		if i > 0 && i < len(s.sent) && s.sent[i-1] == "sync" && strings.HasPrefix(s.sent[i], "watches") { // the library sets them beside us
			s.sent[i-1], s.sent[i] = s.sent[i], s.sent[i-1]
		}
		if i == len(s.sent) || !slices.Contains([]string{"children", "get", "exists"}, strings.Fields(s.sent[i])[0]) {
			slices.Sort(s.sent[from:i])
			from = i + 1
		}
	}
	if len(s.sent) == 0 {
		return ""
	}
	return ": " + strings.Join(s.sent, ", ")
}

// open makes the backend that is recorded. A warm one has a session already.
func (s *scene) open(warm bool, opts ...Option) {
	s.b = open(s.t, s.proxy.Addr, s.root, opts...)
	if warm {
		release(s.t, asker(s.t, s.b, "warm").Lease("warm", lasting(long)))
		conn := plainConn(s.t, zktest.Shared(s.t).Addr)
		for _, key := range []string{"k", "k2"} { // with a child that is not ours, so that the server leaves it
			for _, one := range []string{"/" + key, "/" + key + "/foreign"} {
				_, err := conn.Create(s.root+one, nil, 0, s.b.set.acl)
				require.NoError(s.t, err)
			}
		}
	}
	s.mu.Lock()
	s.on = true
	s.mu.Unlock()
}

// step makes one step and returns the answer that its caller gets.
func (s *scene) step(f []string) string {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	name, args := f[0], append(f[1:], "")
	switch name {
	case "open", "cold":
		var opts []Option
		if args[0] != "" {
			most, _ := strconv.ParseInt(args[0], 10, 64)
			opts = append(opts, wearing(most))
		}
		s.open(name == "open", opts...)
		return ""
	case "lose":
		s.proxy.LoseReply("-" + parts.Tag(args[0]) + "-")
		return ""
	case "swallow":
		s.proxy.SwallowReply("-" + parts.Tag(args[0]) + "-")
		return ""
	case "stall":
		s.proxy.Stall(args[0] == "on")
		return ""
	case "cut":
		s.proxy.Cut()
		return ""
	case "rob":
		s.rob(args[0], false)
		return ""
	case "expire":
		s.stolen = true
		s.rob(args[0], true)
		return ""
	case "close":
		return class(s.b.Close())
	case "ping":
		return class(s.b.Ping(ctx))
	case "echo":
		return class(s.b.Echo(ctx))
	case "ttl":
		longest, err := s.b.LongestTTL(ctx, "shop", long)
		return fmt.Sprint(longest, " ", class(err))
	case "list":
		page, _, err := s.b.List(ctx, "", "", 10)
		return fmt.Sprint(len(page), " ", class(err))
	case "inspect":
		var err error
		s.found, err = s.b.Inspect(ctx, "k")
		return fmt.Sprintf("%d hold, %d wait, %s", len(s.found.Holders), len(s.found.Waiters), class(err))
	case "break":
		_, err := s.b.Break(ctx, s.found, "somebody", "a test")
		return class(err)
	}
	switch held := s.held[name].(type) {
	case distributed.Lease:
		return s.lease(ctx, held, args[0])
	case distributed.Place:
		if args[0] == "leave" {
			return class(held.Leave(ctx))
		}
		if args[0] == "granted" {
			l := granted(s.t, held)
			if l == nil {
				return "gone"
			}
			s.held[name] = l
			return "lease"
		}
	}
	return s.enter(ctx, name, args)
}

// lease does something with a lease.
func (s *scene) lease(ctx context.Context, l distributed.Lease, what string) string {
	switch what {
	case "release":
		return class(l.Release(ctx))
	case "start":
		answers := make(chan error, 1)
		l.(distributed.AsyncLease).Watch(answerWatcher{answers}, l)
		if l.(distributed.AsyncLease).StartRelease() {
			return "released"
		}
		return class(<-answers)
	case "unheard":
		return fmt.Sprint(l.(distributed.AsyncLease).StartRelease())
	case "abandon":
		l.Abandon()
	case "lost":
		lost(s.t, l)
	case "share":
		d, _ := distributed.As[distributed.Downgrader](l)
		return class(d.Downgrade(ctx))
	case "refill":
		return class(l.Refill(ctx))
	case "draw":
		n := 0
		for ok := true; ok; n++ {
			if _, ok = l.NextFence(); n > 2*blockSize {
				return "one fence"
			}
		}
		return fmt.Sprint(n-1, " fences")
	case "contended":
		require.Eventually(s.t, l.Contended, patience, time.Millisecond)
	case "free":
		require.Eventually(s.t, func() bool { return !l.Contended() }, patience, time.Millisecond)
	}
	return ""
}

// enter asks for a lock: x, s or p2, nowait, after=NAME, key=KEY, cut for a caller that goes soon.
func (s *scene) enter(ctx context.Context, name string, args []string) string {
	req := distributed.Request{Key: "k", Instance: strings.TrimRight(name, "0123456789"), TTL: long}
	for _, arg := range args {
		what, value, _ := strings.Cut(arg, "=")
		switch {
		case what == "s":
			req.Mode = distributed.Shared
		case strings.HasPrefix(what, "p") && len(what) < 4:
			req.Mode = distributed.Shared
			req.Limit, _ = strconv.Atoi(what[1:])
		case what == "nowait":
			req.NoWait = true
		case what == "key":
			req.Key = value
		case what == "after":
			req.Prev = s.held[value].(distributed.Lease)
		case what == "cut":
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.pause)
			defer cancel()
		}
	}
	b := s.b
	if name[0] == 'z' {
		b = s.other
	}
	l, p, err := b.Enter(ctx, req)
	for ; b == s.other && errors.Is(err, distributed.ErrUnreached); l, p, err = b.Enter(ctx, req) {
	}
	switch {
	case l != nil:
		s.held[name] = l
		return "lease"
	case p != nil:
		s.held[name] = p
		return "place"
	}
	return class(err)
}

// rob deletes an instance's nodes behind its back, or ends their session.
func (s *scene) rob(instance string, session bool) {
	conn := plainConn(s.t, zktest.Shared(s.t).Addr)
	require.Eventually(s.t, func() bool { // its owner takes a session back
		names, _, err := conn.Children(s.root + "/k")
		require.NoError(s.t, err)
		gone := true
		for _, one := range names {
			if node := s.root + "/k/" + one; strings.Contains(one, "-"+parts.Tag(instance)+"-") {
				gone = false
				if _, stat, err := conn.Exists(node); err == nil && session {
					steal(s.t, stat.EphemeralOwner)
				} else if err == nil {
					_ = conn.Delete(node, -1)
				}
			}
		}
		return gone
	}, patience, time.Millisecond)
}

// class is an error in one word.
func class(err error) string {
	for _, one := range []struct {
		err  error
		name string
	}{
		{nil, "ok"}, {distributed.ErrClosed, "closed"}, {distributed.ErrHeld, "held"}, {distributed.ErrNotHeld, "not held"},
		{distributed.ErrLeaseLost, "lost"},
		{context.DeadlineExceeded, "deadline"}, {distributed.ErrRefused, "refused"}, {distributed.ErrUnreached, "unreached"},
		{distributed.ErrUnavailable, "unavailable"},
	} {
		if errors.Is(err, one.err) {
			return one.name
		}
	}
	return err.Error()
}

// record is the filter of requests: it takes the packets out of the pieces.
func (s *scene) record(l *testproc.Link, b []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest, open := s.links[l]
	rest = append(rest, b...)
	for len(rest) >= 4 && len(rest) >= 4+int(binary.BigEndian.Uint32(rest)) {
		packet, line := jute{rest[4 : 4+binary.BigEndian.Uint32(rest)]}, "connect"
		rest = rest[4+len(packet.b):]
		if open {
			packet.num()
			line = s.request(&packet, packet.num())
		}
		if open = true; line != "" && s.on {
			s.sent, s.latest = append(s.sent, line), time.Now()
		}
	}
	s.links[l] = slices.Clone(rest)
	return true
}

// request is the normal form of a request: ! is a watch.
func (s *scene) request(p *jute, op int32) string {
	read := func(what string) string {
		return what + " " + s.normal(p.text()) + map[byte]string{1: "!"}[p.take(1)[0]]
	}
	switch op {
	case 1, 19:
		line := map[int32]string{1: "create ", 19: "container "}[op] + s.normal(p.text())
		p.text()
		for range p.num() {
			_, _, _ = p.num(), p.text(), p.text()
		}
		p.num()
		return line
	case 2, 13:
		line := map[int32]string{2: "delete ", 13: "check "}[op] + s.normal(p.text())
		p.num()
		return line
	case 3:
		return read("exists")
	case 4:
		return read("get")
	case 5:
		line := "set " + s.normal(p.text())
		_, _ = p.text(), p.num()
		return line
	case 9:
		return "sync"
	case 12:
		return read("children")
	case 14:
		var ops []string
		for {
			op, done, _ := p.num(), p.take(1)[0] == 1, p.num()
			if done {
				return "(" + strings.Join(ops, " + ") + ")"
			}
			ops = append(ops, s.request(p, op))
		}
	case 101:
		p.take(8)
		var nodes []string
		for range 3 {
			for range p.num() {
				nodes = append(nodes, s.normal(p.text()))
			}
		}
		slices.Sort(nodes)
		return "watches " + strings.Join(nodes, " ")
	case -11:
		return "end"
	}
	return ""
}

// normal is a path below the root, with a request's node as its mode, instance and, from the second of that on, number.
func (s *scene) normal(at string) string {
	at = cmp.Or(strings.TrimPrefix(strings.TrimPrefix(at, s.root), "/"), "/")
	dir, name := path.Split(at)
	if strings.HasPrefix(name, probeName) {
		return dir + probeName
	}
	if len(name) < headLength || name[1] != '-' || name[0] != 'x' && name[0] != 's' {
		return at
	}
	tag, id := name[2:2+parts.TagLength], name[3+parts.TagLength:headLength-1]
	if s.names[id] == "" {
		for instance := range strings.SplitSeq("a b c d z zy", " ") {
			if parts.Tag(instance) == tag {
				s.counts[tag]++
				s.names[id] = instance + map[bool]string{true: strconv.Itoa(s.counts[tag])}[s.counts[tag] > 1]
			}
		}
	}
	return dir + name[:1] + "." + s.names[id]
}

// jute reads what the protocol is made of.
type jute struct{ b []byte }

func (j *jute) take(n int) []byte {
	taken := j.b[:n]
	j.b = j.b[n:]
	return taken
}

func (j *jute) num() int32 { return int32(binary.BigEndian.Uint32(j.take(4))) }

func (j *jute) text() string { return string(j.take(max(int(j.num()), 0))) }
