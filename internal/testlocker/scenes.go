package testlocker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testscope"
)

// Scenes are what a backend sends to its service, scene by scene. In the file a scene begins with #, a line that is not indented is a step,
// and indented are what it returns and the requests that it causes. A process is a letter, with a backend of its own. A handle (a, a2)
// is a lease or a place of the process of its letter. So a change of what is on the wire is seen, and one that should change nothing
// there proves it.
type Scenes struct {
	File   string
	Update bool          // write the file anew, with what is sent today
	TTL    time.Duration // of leases: so long that no scene takes it
	Draws  int           // how many fences the step draw takes
	Stage  func(*Scene) Stage
}

// Stage is where one scene is played.
type Stage interface {
	// Process returns the backend of a process, which tells the Scene what it sends.
	Process(letter string) distributed.Backend
	// Key returns the key that the scene calls so.
	Key(name string) string
	// Step takes a step that is no Scene's own, and returns what it says.
	Step(ctx context.Context, letter, verb string, args []string) string
	// Settle waits until what was answered is known, when a step has ended.
	Settle()
}

// Arranger is a Stage where some of what a process sends in a step comes in any order: it brings the lines, of one process after the
// other, into one.
type Arranger interface{ Arrange(lines []string) }

// ByRank arranges the lines of each process by their rank.
func ByRank(lines []string, rank func(line string) int) {
	slices.SortStableFunc(lines, func(x, y string) int { return cmp.Or(cmp.Compare(x[:3], y[:3]), cmp.Compare(rank(x), rank(y))) })
}

// scenePatience is how long a line is waited for.
const scenePatience = 10 * time.Second

// longScene ends the name of a scene that waits for what is sent at times of its own, or for an expiry.
const longScene = "(long)"

// Run plays them all.
func (s Scenes) Run(t *testing.T) {
	t.Helper()
	file, err := os.ReadFile(s.File)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, text := range strings.SplitAfter(string(file), "\n\n") {
		name, script, _ := strings.Cut(text, "\n")
		t.Run(strings.TrimPrefix(name, "# "), func(t *testing.T) {
			if strings.HasSuffix(name, longScene) && !s.Update {
				testscope.Long(t, "waits for what is sent at times of its own, or for an expiry")
			}
			out.WriteString(name + "\n")
			one := &Scene{
				T: t, of: s, leases: map[string]distributed.Lease{}, places: map[string]distributed.Place{},
				muted: map[string]bool{}, news: make(chan struct{}, 1000),
			}
			one.stage = s.Stage(one)
			one.play(strings.Split(strings.TrimSpace(script), "\n"), &out)
		})
		out.WriteString("\n")
	}
	if !s.Update {
		return
	}
	if err := os.WriteFile(s.File, []byte(strings.TrimSpace(out.String())+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Scene is one that is being played.
type Scene struct {
	T *testing.T

	of     Scenes
	stage  Stage
	leases map[string]distributed.Lease
	places map[string]distributed.Place
	news   chan struct{} // one for each line

	mu     sync.Mutex // guards all below
	lines  []*string  // of the step, in the order in which they were sent; they begin with the letter of the process; "": not answered yet
	once   bool       // repeated lines are left out
	awaits string     // the process whose step await this is
	muted  map[string]bool
	ended  bool
	cancel context.CancelFunc // of the step
}

func (s *Scene) play(script []string, out *strings.Builder) {
	for len(script) > 0 {
		step, want := script[0], []string(nil)
		for script = script[1:]; len(script) > 0 && strings.HasPrefix(script[0], "  "); script = script[1:] {
			want = append(want, script[0])
		}
		got := s.record(strings.Fields(step), len(want))
		out.WriteString(step + "\n")
		for _, line := range got {
			out.WriteString(line + "\n")
		}
		if !s.of.Update && !slices.Equal(want, got) {
			s.T.Fatalf("%s\nwant\n%s\ngot\n%s", step, strings.Join(want, "\n"), strings.Join(got, "\n"))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// record takes a step, and returns what it causes. It waits for so many lines, or, if they are to be written, until no more come.
func (s *Scene) record(words []string, want int) []string {
	letter, await := words[1][:1], words[0] == "await"
	b := s.stage.Process(letter)
	ctx, cancel := context.WithCancel(s.T.Context())
	defer cancel()
	s.mu.Lock()
	s.lines, s.once, s.cancel, s.awaits = nil, await, cancel, ""
	if await {
		s.awaits = letter
	}
	s.mu.Unlock()
	if answer := s.step(ctx, b, words[0], words[1], words[2:]); answer != "" {
		s.Say("", "= "+answer)
	}
	pause := scenePatience
	switch {
	case await:
		want, _ = strconv.Atoi(words[2])
	case s.of.Update:
		want, pause = cap(s.news), 300*time.Millisecond
	}
	for s.count() < want {
		select {
		case <-s.news:
		case <-time.After(pause):
			want = 0
		}
	}
	s.stage.Settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.muted[letter] = await
	lines := s.answered()
	ByRank(lines, func(string) int { return 0 }) // what several processes send comes in any order
	if a, is := s.stage.(Arranger); is {
		a.Arrange(lines)
	}
	if await {
		slices.Sort(lines)
	}
	return lines
}

func (s *Scene) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.answered())
}

// answered are the lines of requests that are. The caller holds mu.
func (s *Scene) answered() (lines []string) {
	for _, line := range s.lines {
		if *line != "" {
			lines = append(lines, *line)
		}
	}
	return lines
}

// Sent notes that a process sends a request now, and returns what records it when it is answered, unless the process is muted. So what a
// process sends one after the other stays so, whichever goroutine hears its answer first.
func (s *Scene) Sent(letter string) (answered func(line string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := new(string)
	s.lines = append(s.lines, slot)
	return func(line string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		line = fmt.Sprintf("  %1s %s", letter, line)
		if letter != "" && (s.muted[letter] || s.ended) || s.once && slices.ContainsFunc(s.lines, func(l *string) bool { return *l == line }) {
			return
		}
		if *slot = line; !slices.Contains(s.lines, slot) { // it was sent in a step before
			s.lines = append(s.lines, slot)
		}
		s.news <- struct{}{}
	}
}

// Say records a request of a process, unless it is muted.
func (s *Scene) Say(letter, line string) { s.Sent(letter)(line) }

// Muted reports that nothing is recorded of a process.
func (s *Scene) Muted(letter string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.muted[letter] || s.ended
}

// Awaits reports that what this process sends at times of its own is recorded in this step.
func (s *Scene) Awaits(letter string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.awaits == letter
}

// Go ends the context of the step: its caller goes.
func (s *Scene) Go() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel()
}

func (s *Scene) mute(letter string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.muted[letter] = is
}

func (s *Scene) step(ctx context.Context, b distributed.Backend, verb, handle string, args []string) string {
	l, place := s.leases[handle], s.places[handle]
	switch verb {
	case "enter", "warm":
		return s.enter(ctx, b, verb, handle, args)
	case "granted":
		select {
		case l, ok := <-place.Granted():
			if s.leases[handle] = l; !ok {
				return "lost"
			}
			return "lease"
		case <-time.After(scenePatience):
			s.T.Fatal("nothing granted")
		}
	case "leave":
		return outcome(place.Leave(ctx))
	case "release":
		return outcome(l.Release(ctx))
	case "drop":
		return fmt.Sprint("done ", l.StartRelease())
	case "refill":
		return outcome(l.Refill(ctx))
	case "downgrade":
		return outcome(l.Downgrade(ctx))
	case "draw":
		for range s.of.Draws {
			s.eventually(verb, func() bool { _, ok := l.NextFence(); return ok }) // more are on their way
		}
	case "abandon":
		l.Abandon()
	case "lost":
		s.eventually(verb, func() bool { return gone(l) })
	case "contended", "quiet":
		s.eventually(verb, func() bool { return l.Contended() == (verb == "contended") })
	case "unread":
		s.eventually(verb, func() bool { return len(place.Granted()) > 0 })
	case "break":
		i := b.(distributed.Inspector)
		found, err := i.Inspect(ctx, s.stage.Key("k"))
		if err == nil {
			_, err = i.Break(ctx, found, "me", "a test")
		}
		return outcome(err)
	case "detach", "adopt", "discard":
		return s.transfer(ctx, b.(distributed.Transferer), verb, handle)
	case "close":
		return outcome(b.Close())
	case "await":
	default:
		return s.stage.Step(ctx, handle, verb, args)
	}
	return ""
}

func (s *Scene) eventually(what string, is func() bool) {
	for end := time.Now().Add(scenePatience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.T.Fatalf("not %s", what)
		}
	}
}

func (s *Scene) enter(ctx context.Context, b distributed.Backend, verb, handle string, args []string) string {
	letter := handle[:1]
	req := distributed.Request{Key: s.stage.Key("k"), Instance: letter, TTL: s.of.TTL}
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
		case "key":
			req.Key = s.stage.Key(value)
		case "ttl":
			req.TTL, _ = time.ParseDuration(value)
		}
	}
	if verb == "warm" {
		req.Key = s.stage.Key("warm")
		s.mute(letter, true)
		defer s.mute(letter, false)
		l, _, err := b.Enter(ctx, req)
		if err != nil || l == nil {
			s.T.Fatal(l, err)
		}
		return map[bool]string{false: "failed"}[l.Release(ctx) == nil]
	}
	l, place, err := b.Enter(ctx, req)
	s.leases[handle], s.places[handle] = l, place
	switch {
	case l != nil:
		return "lease"
	case place != nil:
		return "place"
	}
	return outcome(err)
}

// transfer detaches a lease, or adopts or discards the one that is: each scene has one id.
func (s *Scene) transfer(ctx context.Context, b distributed.Transferer, verb, handle string) string {
	const id = "the-detached-lease"
	req := distributed.Request{Key: s.stage.Key("k"), Instance: handle[:1], TTL: s.of.TTL}
	switch verb {
	case "detach":
		return outcome(b.Detach(ctx, s.leases[handle], id, s.of.TTL))
	case "discard":
		return outcome(b.Discard(ctx, req, id))
	}
	l, err := b.Adopt(ctx, req, id)
	if s.leases[handle] = l; err == nil {
		return "lease"
	}
	return outcome(err)
}

// outcome is an error in a word.
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

// gone reports whether the lease is known to be lost.
func gone(l distributed.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}
