package redislock

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testlocker"
)

const scenesFile = "testdata/scenes.txt"

var update = flag.Bool("update", false, "write "+scenesFile+" anew")

// What is sent to Redis: see testlocker.Scenes. A line is a script, its key, the mode and name of its attempt, its numbers in their order,
// and the attempt whose fence is the largest that the process knows; then what the server answers. Calls that share an exchange are a
// line each. Process g leaves a gap for foreigners, and process w waits for a replica.
func TestScenes(t *testing.T) {
	t.Parallel()
	s := redistest.StartReplicated(t).Primary
	for _, one := range allScripts { // each is sent by its digest
		s.Do("SCRIPT", "LOAD", one.Text)
	}
	var n atomic.Int64
	testlocker.Scenes{
		File: scenesFile, Update: *update, TTL: 10 * time.Minute, Draws: firstBlock / 2,
		Stage: func(one *testlocker.Scene) testlocker.Stage {
			return &stage{
				Scene: one, server: s, system: fmt.Sprint("scene", n.Add(1)),
				processes: map[string]*process{}, names: map[string]string{}, counts: map[string]int{}, fences: map[string]string{},
			}
		},
	}.Run(t)
}

type stage struct {
	*testlocker.Scene
	server *redistest.Server
	system string

	mu        sync.Mutex // guards all below
	processes map[string]*process
	names     map[string]string // of attempts, by their digits
	counts    map[string]int    // attempts of each instance
	fences    map[string]string // the attempts whose blocks end there
}

// settling is how long a step is given after its last line.
const settling = 20 * time.Millisecond

// process is a Backend, as the transport that its requests go through.
type process struct {
	conn.Transport
	b      *Backend
	s      *stage
	letter string
	faults []string      // of its next requests; guarded by s.mu, as all below
	held   *conn.Call    // see deliver
	next   chan struct{} // has a value for each answer since a request that waits for them
}

func (s *stage) Key(name string) string { return s.system + ":" + name }

// Arrange implements testlocker.Arranger.
func (*stage) Arrange(lines []string) { testlocker.ByRank(lines, rank) }

// rank has what a probe sends at once first, in any order, and last a leave that finds nothing: two of them go out beside each other.
func rank(line string) int {
	first := []string{"INFO", "SCRIPT", "probe", "ready", "PING"}
	at := slices.Index(first, strings.Fields(line[4:])[0])
	switch {
	case strings.HasSuffix(line, "-> lost"), strings.HasSuffix(line, "-> over"):
		return len(first) + 1
	case at < 0:
		return len(first)
	}
	return at
}

// Settle gives what was answered the time to be known. What hangs is not waited for.
func (s *stage) Settle() {
	for _, p := range s.processes {
		for _, n := range p.b.nodes.all() {
			n.lane.Flush(settling)
		}
	}
	for start := time.Now(); !s.heard() && time.Since(start) < settling; {
		time.Sleep(time.Millisecond)
	}
}

// heard reports that all holders know whether somebody waits.
func (s *stage) heard() bool {
	for _, p := range s.processes {
		for _, a := range p.b.nodes.attempts() {
			if l := a.Lease(); l != nil && a.Held() && l.Contended() != (s.server.Do("ZCARD", keysOf(a.Key, "")[queueKey]) != int64(0)) {
				return false
			}
		}
	}
	return true
}

func (s *stage) Process(letter string) distributed.Backend { return s.process(letter).b }

func (s *stage) process(letter string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[letter]
	if p == nil {
		var opts []Option
		switch letter {
		case "g":
			opts = append(opts, WithInteropGap(time.Millisecond))
		case "w":
			opts = append(opts, WithReplicaAcks(1, patience))
		}
		p = &process{b: open(s.T, s.server.Addr, opts...), s: s, letter: letter}
		swapTransport(p.b, func(tr conn.Transport) conn.Transport { p.Transport = tr; return p })
		s.processes[letter] = p
	}
	return p
}

func (s *stage) Step(ctx context.Context, handle, verb string, args []string) string {
	p := s.process(handle[:1])
	switch verb {
	case "fault": // of the requests from now on: see Do
		s.mu.Lock()
		defer s.mu.Unlock()
		p.faults = append(p.faults, args...)
	case "deliver": // what was held up
		p.Transport.Do(ctx, p.held)
		require.NoError(s.T, p.held.Err)
		return words(p.held.Reply).first()
	case "delete":
		s.server.Do("DEL", s.Key("k"))
	case "foreign":
		s.server.Do("SET", s.Key("k"), "theirs")
	case "ping":
		require.NoError(s.T, p.b.Ping(ctx))
	case "echo":
		require.NoError(s.T, p.b.Echo(ctx))
	case "probe":
		require.NoError(s.T, p.b.Probe(ctx, distributed.Probe{Key: s.Key("k"), TTL: time.Minute}))
	case "ttl":
		d, err := p.b.LongestTTL(ctx, s.system, time.Minute)
		require.NoError(s.T, err)
		return d.String()
	default:
		require.Fail(s.T, "no such step", verb)
	}
	return ""
}

// Ping implements conn.Transport, as all below.
func (p *process) Ping(ctx context.Context, tag string) (time.Duration, error) {
	p.s.Say(p.letter, "PING")
	return p.Transport.Ping(ctx, tag)
}

func (p *process) About(ctx context.Context, tag string) (conn.Info, error) {
	p.s.Say(p.letter, "INFO")
	return p.Transport.About(ctx, tag)
}

func (p *process) Load(ctx context.Context, tag string, scripts ...*conn.Script) {
	p.s.Say(p.letter, fmt.Sprint("SCRIPT LOAD ", len(scripts)))
	p.Transport.Load(ctx, tag, scripts...)
}

func (p *process) Do(ctx context.Context, calls ...*conn.Call) {
	for _, c := range calls {
		p.do(ctx, c)
	}
}

// overtaking is how many requests overtake a release: the next enter, and the leave by which that enter gives the release up.
const overtaking = 2

// do makes a call, or has a fault: its answer is lost, it is refused, it is held up, its caller goes, or it is lost itself; or the next
// requests overtake it.
func (p *process) do(ctx context.Context, c *conn.Call) {
	regular := slices.Contains([]*conn.Script{heartbeatScript, renewScript, renewAllScript, renewOneScript}, c.Script)
	if p.s.Muted(p.letter) || regular && !p.s.Awaits(p.letter) {
		p.Transport.Do(ctx, c)
		return
	}
	text, fault := p.request(c), ""
	p.s.mu.Lock()
	if len(p.faults) > 0 && !regular {
		fault, p.faults = p.faults[0], p.faults[1:]
	}
	if fault == "overtaken" {
		p.next = make(chan struct{}, overtaking)
	}
	next := p.next
	p.s.mu.Unlock()
	switch fault {
	case "overtaken":
		p.s.Say(p.letter, text+" (overtaken)")
		for range overtaking {
			select {
			case <-next:
			case <-time.After(patience):
			}
		}
		fallthrough
	case "":
		answered := p.s.Sent(p.letter)
		p.Transport.Do(ctx, c)
		answered(text + p.answer(c))
		select {
		case next <- struct{}{}:
		default:
		}
		return
	case "answer":
		p.Transport.Do(ctx, c)
		c.Reply, c.Err = "", context.DeadlineExceeded
	case "refuse":
		c.Err = redisError("NOPERM this user has no permissions")
	case "hold":
		held := *c
		p.s.mu.Lock()
		p.held = &held
		p.s.mu.Unlock()
		c.Err = context.DeadlineExceeded
	case "hang":
		p.s.Go()
		c.Err = context.DeadlineExceeded
	case "lose":
		c.Err = context.DeadlineExceeded
	}
	p.s.Say(p.letter, text+" ("+fault+")")
}

// redisError is an answer of the server.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

var _ redis.Error = redisError("")

// request is a call in short.
func (p *process) request(c *conn.Call) string {
	keys := c.Args[2].(int)
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	text := []string{c.Script.Name}
	switch {
	case c.Script == renewAllScript:
		for i := range keys / 2 { // locks, and then their queues
			text = append(text, p.key(c, i), p.attempt(argOf(c, conn.HeadLen+keys+1+i)))
		}
	case c.Script == releaseScript:
		text = append(text, p.key(c, 0), p.attempt(argOf(c, conn.HeadLen+keys)))
	case keys == keyCount && len(c.Args) > settingsArg+1:
		text = append(text, p.key(c, 0), argOf(c, modeArg), p.attempt(argOf(c, tokenArg)))
		for i := modeArg + 1; i < len(c.Args); i++ {
			switch one := argOf(c, i); {
			case i == settingsArg+1:
				text = append(text, cmp.Or(p.s.fences[strings.TrimLeft(one, "0")], "-"))
			case one == noPrev:
				text = append(text, "-")
			case strings.HasPrefix(one, prefix):
				text = append(text, "after", p.attempt(one))
			default:
				text = append(text, one)
			}
		}
	}
	return strings.Join(text, " ")
}

func argOf(c *conn.Call, i int) string {
	switch x := c.Args[i].(type) {
	case *string:
		return *x
	case *uint64:
		return fmt.Sprint(*x)
	default:
		return fmt.Sprint(x)
	}
}

func (p *process) key(c *conn.Call, i int) string {
	return strings.TrimPrefix(argOf(c, conn.HeadLen+i), p.s.system+":")
}

// attempt is the name of the attempt of a token, or of a lock's value. The caller holds mu.
func (p *process) attempt(token string) string {
	parts := strings.Split(strings.TrimPrefix(token, prefix), ":") // mode, process, attempt, instance
	id, instance := parts[2], parts[3]
	if p.s.names[id] == "" {
		p.s.counts[instance]++
		p.s.names[id] = fmt.Sprint(instance, p.s.counts[instance])
	}
	return p.s.names[id]
}

// answer is a reply in short.
func (p *process) answer(c *conn.Call) string {
	switch {
	case c.Err != nil:
		return " -> failed"
	case c.Script == probeScript, c.Script == inspectScript: // which have no first word
		return ""
	}
	g, text := grant{}, words(c.Reply).first()
	switch c.Script {
	case enterScript, heartbeatScript:
		s := readStanding(c.Reply, time.Time{})
		g, text = s.grant, string(s.kind)
		if s.kind == hasPlace {
			text += fmt.Sprint(" ", s.position.rank)
		}
		if s.prevLost {
			text += ", prev lost"
		}
	case refillScript, downgradeScript:
		g = readRefill(c.Reply).grant
	}
	if g.count > 0 {
		p.s.mu.Lock()
		p.s.fences[fmt.Sprint(g.fence+g.count-1)] = "f" + p.attempt(argOf(c, tokenArg))
		p.s.mu.Unlock()
	}
	return " -> " + text
}
