package sqllock

import (
	"context"
	"database/sql/driver"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
)

const scenesFile = "testdata/scenes.txt"

var update = flag.Bool("update", false, "write "+scenesFile+" anew")

// What is sent to the database: see testlocker.Scenes. A line is a statement, and the locks, attempts, instances and small numbers among
// its arguments; two fences that follow each other are how many of a block are unused. Looks, heartbeats and renewals come when they are
// due, so they are recorded where they are awaited alone. The database is SQLite, which does nothing by itself.
func TestScenes(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	testlocker.Scenes{
		File: scenesFile, Update: *update, TTL: 10 * time.Minute, Draws: fenceBlock / 4,
		Stage: func(one *testlocker.Scene) testlocker.Stage {
			return &stage{
				Scene: one, d: newSQLite(one.T), prefix: fmt.Sprint("scene", n.Add(1), ":"), held: make(chan struct{}),
				processes: map[string]*process{}, names: map[string]string{}, counts: map[string]int{},
			}
		},
	}.Run(t)
}

type stage struct {
	*testlocker.Scene
	d      *database
	prefix string
	held   chan struct{} // closed by the step deliver

	mu        sync.Mutex // guards all below
	processes map[string]*process
	names     map[string]string // of attempts, by their tokens
	counts    map[string]int    // attempts of each process
}

// settling is how long a step is given after its last line.
const settling = 20 * time.Millisecond

// process is a Backend, and what its statements meet.
type process struct {
	b      *Backend
	s      *stage
	letter string
	faults []string // of its next statements; guarded by s.mu
	texts  map[string]string
}

func (s *stage) Key(name string) string { return s.prefix + name }

// Settle gives what was answered the time to be known. What hangs is not waited for.
func (s *stage) Settle() {
	for _, p := range s.processes {
		p.b.lane.Flush(settling)
	}
}

func (s *stage) Process(letter string) distributed.Backend { return s.process(letter).b }

func (s *stage) process(letter string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.processes[letter]
	if p == nil {
		d := s.d.over(s.d.connector)
		p = &process{b: d.backend(s.T), s: s, letter: letter}
		st := p.b.st()
		p.texts = map[string]string{
			st.acquire.text: "insert", st.again.text: "acquire", st.release.text: "release", st.load.text: "load", st.entries.text: "entries",
			st.store.text: "store", st.add.text: "add", st.alter.text: "alter", st.peek.text: "peek", st.drop: "drop", st.renew: "renew",
			st.renewMembers: "renew seats", st.beat: "beat", st.places: "look at places", st.leases: "look at leases", st.seats: "seats",
			sqliteBegin: "begin", sqliteCommit: "commit", "ROLLBACK": "rollback",
		}
		d.wire.filtered(p.pass)
		s.processes[letter] = p
	}
	return p
}

func (s *stage) Step(_ context.Context, handle, verb string, args []string) string {
	p := s.process(handle[:1])
	switch verb {
	case "fault": // of the statements from now on: see pass
		s.mu.Lock()
		defer s.mu.Unlock()
		p.faults = append(p.faults, args...)
	case "deliver": // what hangs
		close(s.held)
	case "vanish": // the row of the process's attempt is deleted, or the lock taken from it
		b := s.d.backend(s.T)
		run(s.T, b, "DELETE FROM {waiters} WHERE token LIKE $1", p.b.process+"%")
		run(s.T, b, "UPDATE {locks} SET owner = '' WHERE owner LIKE $1", p.b.process+"%")
	default:
		require.Fail(s.T, "no such step", verb)
	}
	return ""
}

var listOfMarks = regexp.MustCompile(`\(\?(,\?)*\)`)

// statement is the name of one.
func (p *process) statement(text string) string {
	if name := p.texts[text]; name != "" {
		return name
	}
	text, _ = strings.CutSuffix(text, " RETURNING owner, queued, expires_at")
	if name := p.texts[listOfMarks.ReplaceAllString(text, "({list})")]; name != "" {
		return name
	}
	for what, name := range map[string]string{"SET fence = CASE WHEN name": "release many", "SET broken": "note", "UNION ALL": "inspect"} {
		if strings.Contains(text, what) {
			return name
		}
	}
	return text
}

// words are the arguments of a statement in short.
func (p *process) words(args []driver.NamedValue) (words []string) {
	var fence int64
	for _, arg := range args {
		word := ""
		switch v := arg.Value.(type) {
		case string:
			switch process, _, is := strings.Cut(v, "."); {
			case is && len(process) == processLength:
				word = p.s.attempt(v)
			case v == "":
				word = "-"
			default:
				word = strings.TrimPrefix(v, p.s.prefix)
			}
		case int64:
			const aFence = 1e18
			switch {
			case v > aFence && fence > 0:
				word = fmt.Sprint("unused=", min(fence-v, fenceBlock)) // a block that follows at once goes on
			case v > aFence:
				fence = v
				continue
			case v < 100:
				word = fmt.Sprint(v)
			}
		}
		if fence = 0; word != "" && (len(words) == 0 || words[len(words)-1] != word) {
			words = append(words, word)
		}
	}
	return words
}

// attempt is the name of the one with that token.
func (s *stage) attempt(token string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[token] == "" {
		letter := "?"
		for _, p := range s.processes {
			if strings.HasPrefix(token, p.b.process) {
				letter = p.letter
			}
		}
		s.counts[letter]++
		s.names[token] = fmt.Sprint(letter, s.counts[letter])
	}
	return s.names[token]
}

// pass carries out a statement, or has a fault: it is lost, or its answer, it is refused, or its caller goes while it is under way.
func (p *process) pass(s *statement) error {
	name := p.statement(s.text)
	regular := slices.Contains([]string{"look at places", "look at leases", "beat", "renew", "renew seats", "seats"}, name)
	if p.s.Muted(p.letter) || strings.Contains(s.text, "pragma_query_only") || strings.Contains(s.text, "'version'") || regular && !p.s.Awaits(p.letter) {
		return s.run()
	}
	line, fault := name, ""
	if name != "note" { // which has the time
		line = strings.Join(append([]string{name}, p.words(s.args)...), " ")
	}
	p.s.mu.Lock()
	if len(p.faults) > 0 && !regular {
		fault, p.faults = p.faults[0], p.faults[1:]
	}
	p.s.mu.Unlock()
	if fault == "" || fault == "-" {
		answered := p.s.Sent(p.letter)
		err := s.run()
		if err != nil {
			line += " -> failed"
		}
		answered(line)
		return err
	}
	p.s.Say(p.letter, line+" ("+fault+")")
	switch fault {
	case "answer":
		return s.breaks(lostReply)
	case "refuse":
		return liteError(3) // it has no rights
	case "hang":
		p.s.Go()
		<-p.s.held
		return s.run()
	}
	return s.breaks(lostRequest)
}
