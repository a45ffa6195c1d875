package zklock

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/parts"
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/zktest"
)

const scenesFile = "testdata/scenes.txt"

var update = flag.Bool("update", false, "write "+scenesFile+" anew")

// What is sent to ZooKeeper: see testlocker.Scenes. A line is a request with its node, and ! says that it sets a watch. What is sent in one
// transaction is in brackets. Syncs come at times of their own, and are recorded in the step behind the step syncs only.
func TestScenes(t *testing.T) {
	if race.Enabled {
		t.Skip("requests that are due at a time come before those that answer others; make unraced runs it")
	}
	t.Parallel()
	addr := zktest.Shared(t).Addr
	testlocker.Scenes{
		File: scenesFile, Update: *update, TTL: long, Draws: blockSize / 2,
		Stage: func(one *testlocker.Scene) testlocker.Stage {
			return &stage{
				Scene: one, addr: addr, root: newRoot(), processes: map[string]*process{}, names: map[string]string{}, counts: map[string]int{},
			}
		},
	}.Run(t)
}

// stage is where a scene is played.
type stage struct {
	*testlocker.Scene
	addr, root string

	mu        sync.Mutex // guards all below
	processes map[string]*process
	names     map[string]string // of requests, by their ids
	counts    map[string]int    // requests of each instance
}

// process is a Backend, and what dials for it.
type process struct {
	*Backend
	s      *stage
	letter string
	faults []string      // of its next requests; guarded by s.mu, as all below
	syncs  bool          // they are recorded in the next step
	shows  bool          // they are in this one
	synced bool          // the latest line is a sync
	conn   *recorder     // the latest
	hangs  chan struct{} // closed when replies go on; nil: they do
}

func (*stage) Key(name string) string                      { return name }
func (s *stage) Process(letter string) distributed.Backend { return s.process(letter).Backend }

// Arrange implements testlocker.Arranger: reads in a row may be sent at once, and come in any order.
func (*stage) Arrange(lines []string) {
	from := 0
	for i, line := range append(lines, "") {
		if !strings.Contains(line, " children ") && !strings.Contains(line, " get ") && !strings.Contains(line, " exists ") {
			slices.Sort(lines[from:i])
			from = i + 1
		}
	}
}

// Settle waits until the server has told all that a process watches, and nothing is left to look at and to delete.
func (s *stage) Settle() {
	for _, p := range s.processes {
		s.mu.Lock()
		hangs := p.hangs != nil
		p.shows = false
		s.mu.Unlock()
		for _, one := range p.sessions.All() {
			if !hangs {
				settled(s.T, one)
			}
		}
		s.mu.Lock()
		p.shows, p.syncs, p.synced = p.syncs, false, false
		s.mu.Unlock()
	}
}

func settled(t *testing.T, s *session) {
	t.Helper()
	if s.await(t.Context()) == nil {
		_ = s.sync(t.Context())
	}
	for _, a := range s.Lane.Attempts() {
		rested(t, a)
	}
	s.Lane.Flush(patience)
}

func (s *stage) process(letter string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[letter]
	if p == nil {
		p = &process{s: s, letter: letter}
		p.Backend = open(s.T, s.addr, s.root, func(set *settings) { set.dial = p.dial })
		s.T.Cleanup(p.goOn) // first
		s.processes[letter] = p
	}
	return p
}

func (s *stage) Step(ctx context.Context, handle, verb string, args []string) string {
	p := s.process(handle[:1])
	switch verb {
	case "fault": // of the requests from now on: see Write
		s.mu.Lock()
		defer s.mu.Unlock()
		p.faults = append(p.faults, args...)
	case "syncs":
		s.mu.Lock()
		defer s.mu.Unlock()
		p.syncs = true
	case "resume":
		p.goOn()
	case "cut":
		s.mu.Lock()
		latest := p.conn
		s.mu.Unlock()
		_ = latest.Close()
		p.goOn()
	case "worn": // after so few requests
		p.set.sequences = 2
	case "made": // with a child that is not ours, so that the server leaves it
		conn := plainConn(s.T, s.addr)
		for _, one := range []string{"", "/k", "/k/foreign", "/k2", "/k2/foreign"} {
			_, err := conn.Create(s.root+one, nil, 0, p.set.acl)
			require.NoError(s.T, err)
		}
	case "delete":
		conn := plainConn(s.T, s.addr)
		names, _, err := conn.Children(s.root + "/k")
		require.NoError(s.T, err)
		i := slices.IndexFunc(names, func(name string) bool { return strings.Contains(name, "-"+parts.Tag(p.letter)+"-") })
		require.NoError(s.T, conn.Delete(s.root+"/k/"+names[i], -1))
	case "ping":
		require.NoError(s.T, p.Ping(ctx))
	case "ttl":
		longest, err := p.LongestTTL(ctx, "shop", long)
		require.NoError(s.T, err)
		return longest.String()
	default:
		require.Fail(s.T, "no such step", verb)
	}
	return ""
}

func (p *process) goOn() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.hangs != nil {
		close(p.hangs)
		p.hangs = nil
	}
}

// recorder is a connection of a process.
type recorder struct {
	net.Conn
	p *process

	// Guarded by p.s.mu.
	open   bool // the handshake was sent
	cut    bool // before its next reply
	closed bool // what is written now is not sent
}

func (p *process) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.conn = &recorder{Conn: conn, p: p}
	return p.conn, nil
}

// Write is called with one packet. Its request is carried out, and may have a fault: the answer is lost, with the connection, or its caller
// goes, and the answer hangs.
func (r *recorder) Write(b []byte) (int, error) {
	text, fault, muted := "connect", "", r.p.s.Muted(r.p.letter)
	r.p.s.mu.Lock()
	switch {
	case r.closed:
		text = ""
	case r.open:
		packet := jute{b[8:]} // behind its length and number
		text = r.p.request(&packet, packet.num())
	}
	switch {
	case text == "sync" && (!r.p.shows || r.p.synced):
		text = ""
	case text != "":
		r.p.synced = text == "sync"
		if r.open && !r.p.synced && !muted && len(r.p.faults) > 0 {
			fault, r.p.faults = r.p.faults[0], r.p.faults[1:]
		}
	}
	r.open = true
	switch fault {
	case "answer":
		r.cut = true
	case "hang":
		r.p.hangs = make(chan struct{})
	}
	r.p.s.mu.Unlock()
	if fault != "" && fault != "none" {
		text += " (" + fault + ")"
	}
	if text != "" {
		r.p.s.Say(r.p.letter, text)
	}
	if fault == "hang" {
		r.p.s.Go()
	}
	return r.Conn.Write(b)
}

func (r *recorder) Close() error {
	r.p.s.mu.Lock()
	defer r.p.s.mu.Unlock()
	r.closed = true
	return r.Conn.Close()
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.p.s.mu.Lock()
	cut, hangs := r.cut, r.p.hangs
	r.p.s.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	if cut {
		return 0, errors.Join(io.EOF, r.Close())
	}
	return n, err
}

// verbs are the requests that begin with a node, by their codes.
var verbs = map[int32]string{
	1: "create", 2: "delete", 3: "exists", 4: "get", 5: "set", 12: "children", 13: "check", 19: "container",
}

const (
	syncCode, multiCode, watchesCode, endCode = 9, 14, 101, -11
)

// request is a request in short; "": it is none of a lock. The caller holds mu.
func (p *process) request(j *jute, code int32) string {
	switch code {
	case syncCode:
		return "sync"
	case endCode:
		return "end"
	case multiCode:
		var all []string
		for {
			code, done, _ := j.num(), j.take(1)[0] == 1, j.num()
			if done {
				return "(" + strings.Join(all, " + ") + ")"
			}
			all = append(all, p.request(j, code))
		}
	case watchesCode:
		j.take(8)
		var nodes []string
		for range 3 {
			for range j.num() {
				nodes = append(nodes, p.node(j.text()))
			}
		}
		slices.Sort(nodes)
		return "watches " + strings.Join(nodes, " ")
	}
	verb := verbs[code]
	if verb == "" {
		return ""
	}
	text := verb + " " + p.node(j.text())
	switch verb {
	case "create", "container":
		j.text()
		for range j.num() {
			_, _, _ = j.num(), j.text(), j.text()
		}
		j.num()
	case "set":
		_, _ = j.text(), j.num()
	case "delete", "check":
		j.num()
	default:
		if j.take(1)[0] == 1 {
			text += "!"
		}
	}
	return text
}

// node is a path below the root. That of a request is its mode, its instance and, from the second of that on, its number.
func (p *process) node(at string) string {
	at = cmp.Or(strings.TrimPrefix(strings.TrimPrefix(at, p.s.root), "/"), "/")
	dir, name := path.Split(at)
	if strings.HasPrefix(name, probeName) {
		return dir + probeName
	}
	if len(name) < headLength || name[1] != '-' || name[0] != 'x' && name[0] != 's' {
		return at
	}
	tag, id := name[2:2+parts.TagLength], name[3+parts.TagLength:headLength-1]
	for _, letter := range []string{"a", "b", "c", "z"} {
		if p.s.names[id] == "" && parts.Tag(letter) == tag {
			p.s.counts[letter]++
			p.s.names[id] = fmt.Sprint(letter, p.s.counts[letter])
		}
	}
	return dir + name[:2] + p.s.names[id]
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
