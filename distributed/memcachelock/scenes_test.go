package memcachelock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/testlocker"
)

const scenesFile = "testdata/scenes.txt"

var update = flag.Bool("update", false, "write "+scenesFile+" anew")

// What is sent to memcached: see testlocker.Scenes. A line is a command, its key and the state that it writes, and the server's answer. A beat
// counts on, and changes nothing else. A touch changes nothing at all. Reads and beats come at times of their own, and are recorded by the
// step await only. So is what a beat has crossed.
func TestScenes(t *testing.T) {
	t.Parallel()
	server := dbtest.Memcached(t)
	var n atomic.Int64
	testlocker.Scenes{
		File: scenesFile, Update: *update, TTL: 10 * time.Minute,
		Stage: func(one *testlocker.Scene) testlocker.Stage {
			return &stage{
				Scene: one, addr: server.Addr, system: fmt.Sprint("scene", n.Add(1)),
				processes: map[string]*process{}, names: map[string]string{}, counts: map[string]int{}, states: map[string]wireState{},
			}
		},
	}.Run(t)
}

type stage struct {
	*testlocker.Scene
	addr, system string

	mu        sync.Mutex // guards all below
	processes map[string]*process
	names     map[string]string // of claims, by their ids
	counts    map[string]int    // claims of each instance
	states    map[string]wireState
}

// process is a Backend and what dials for it.
type process struct {
	b      *Backend
	s      *stage
	letter string
	faults []string // of its next writes; guarded by s.mu, as held
	held   []byte   // see deliver
}

// wireState is an item as this test reads it.
type wireState struct{ Owners, Queue []wireClaim }

type wireClaim struct {
	ID, Instance string
	Beat         int
}

func (s *stage) Key(name string) string   { return s.system + ":" + name }
func (s *stage) itemKey() string          { return "wllock:" + s.Key("k") }
func (*stage) Settle()                    {}
func (s *stage) client() *memcache.Client { return client(s.T, s.addr) }

func (s *stage) Process(letter string) distributed.Backend { return s.process(letter).b }

func (s *stage) process(letter string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[letter]
	if p == nil {
		p = &process{s: s, letter: letter}
		c := s.client()
		c.Timeout = time.Minute // no machine is so slow
		c.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &wire{Conn: conn, p: p}, err
		}
		var err error
		p.b, err = New(c, WithUnfenced())
		require.NoError(s.T, err)
		s.T.Cleanup(func() { _ = p.b.Close() })
		s.processes[letter] = p
	}
	return p
}

func (s *stage) Step(ctx context.Context, handle, verb string, args []string) string {
	p, c := s.process(handle[:1]), s.client()
	switch verb {
	case "fault": // of the writes from now on: see send
		s.mu.Lock()
		defer s.mu.Unlock()
		p.faults = append(p.faults, args...)
	case "deliver": // what was held up
		conn, err := net.Dial("tcp", s.addr)
		require.NoError(s.T, err)
		defer conn.Close()
		_, err = conn.Write(p.held)
		require.NoError(s.T, err)
		answer := make([]byte, 100)
		n, err := conn.Read(answer)
		require.NoError(s.T, err)
		return strings.TrimSpace(string(answer[:n]))
	case "evict":
		require.NoError(s.T, c.Delete(s.itemKey()))
	case "foreign":
		require.NoError(s.T, c.Set(&memcache.Item{Key: s.itemKey(), Value: []byte("theirs")}))
	case "ping":
		require.NoError(s.T, p.b.Ping(ctx))
	case "queued": // the owners and the queue as they lie there
		item, err := c.Get(s.itemKey())
		if errors.Is(err, memcache.ErrCacheMiss) {
			return "free"
		}
		require.NoError(s.T, err)
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.text(parse(item.Value))
	default:
		require.Fail(s.T, "no such step", verb)
	}
	return ""
}

func parse(text []byte) (s wireState) {
	_ = json.Unmarshal(text, &s)
	return s
}

// text is a state in short. The caller holds mu.
func (s *stage) text(state wireState) string {
	names := func(claims []wireClaim) string {
		all := make([]string, len(claims))
		for i, c := range claims {
			if s.names[c.ID] == "" {
				s.counts[c.Instance]++
				s.names[c.ID] = fmt.Sprint(cmp.Or(c.Instance, "ping"), s.counts[c.Instance])
			}
			all[i] = s.names[c.ID]
		}
		return strings.Join(all, " ")
	}
	text := names(state.Owners)
	if len(state.Queue) > 0 {
		text += " | " + names(state.Queue)
	}
	return cmp.Or(text, "free")
}

// wire is a connection of a process. A request is answered when it is written, so that a read takes what is there.
type wire struct {
	net.Conn
	p      *process
	asked  []byte
	answer bytes.Buffer
}

func (w *wire) Read(b []byte) (int, error) {
	if w.answer.Len() == 0 {
		return 0, io.EOF
	}
	return w.answer.Read(b)
}

func (w *wire) Write(b []byte) (int, error) {
	w.asked = append(w.asked, b...)
	head, body, complete := bytes.Cut(w.asked, []byte("\r\n"))
	fields := strings.Fields(string(head))
	if complete && len(fields) > 4 {
		size, _ := strconv.Atoi(fields[4])
		complete = len(body) == size+2
	}
	if !complete {
		return len(b), nil
	}
	w.send(fields, bytes.TrimSuffix(body, []byte("\r\n")))
	w.asked = nil
	return len(b), nil
}

// send sends a request, or has a fault: its answer is lost, it is refused, it is held up, it is lost itself, or another write crosses it.
func (w *wire) send(fields []string, body []byte) {
	text, regular := w.request(fields, body)
	fault, state := "", parse(body)
	w.p.s.mu.Lock()
	if !regular && !w.p.s.Muted(w.p.letter) && len(w.p.faults) > 0 {
		fault, w.p.faults = w.p.faults[0], w.p.faults[1:]
	}
	if fault == "hold" {
		w.p.held = slices.Clone(w.asked)
	}
	w.p.s.mu.Unlock()
	answered := w.p.s.Sent(w.p.letter)
	switch fault {
	case "cross":
		c := w.p.s.client()
		item, err := c.Get(fields[1])
		if err == nil {
			err = c.CompareAndSwap(item)
		}
		require.NoError(w.p.s.T, err)
		text += " (cross)"
	case "refuse":
		w.answer.WriteString("SERVER_ERROR out of memory\r\n")
	}
	if fault == "" || fault == "answer" || fault == "cross" {
		w.exchange(fields[0])
	}
	answer := strings.TrimSpace(w.answer.String())
	if answer == "STORED" {
		w.p.s.mu.Lock()
		w.p.s.states[fields[1]] = state
		w.p.s.mu.Unlock()
	}
	switch {
	case fault == "" && answer == "EXISTS":
		return
	case regular:
		answer = ""
	case fault == "answer":
		w.answer.Reset()
		fallthrough
	case fault != "" && fault != "cross":
		answer = " (" + fault + ")"
	default:
		answer = " -> " + answer
	}
	if !regular || w.p.s.Awaits(w.p.letter) {
		answered(text + answer)
	}
}

// exchange sends the request and receives all of its answer.
func (w *wire) exchange(verb string) {
	if _, err := w.Conn.Write(w.asked); err != nil {
		return
	}
	end := []byte("\r\n")
	if verb == "gets" {
		end = []byte("END\r\n")
	}
	for b := make([]byte, 4096); !bytes.HasSuffix(w.answer.Bytes(), end); {
		n, err := w.Conn.Read(b)
		if err != nil {
			return
		}
		w.answer.Write(b[:n])
	}
}

// request is a request in short.
func (w *wire) request(fields []string, body []byte) (text string, regular bool) {
	if len(fields) < 5 {
		if fields[0] == "gets" {
			fields = []string{"gets", w.p.key(fields[1])}
		}
		return strings.Join(fields, " "), fields[0] == "gets"
	}
	s, state, verb := w.p.s, parse(body), fields[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.text(state)
	switch {
	case verb == "add" || now != s.text(s.states[fields[1]]):
	case fmt.Sprint(s.states[fields[1]]) == fmt.Sprint(state):
		verb = "touch"
	default:
		verb = "beat"
	}
	return verb + " " + w.p.key(fields[1]) + " " + now, verb == "beat"
}

func (p *process) key(item string) string {
	key, ours := strings.CutPrefix(item, "wllock:"+p.s.system+":")
	if !ours {
		return "other"
	}
	return key
}
