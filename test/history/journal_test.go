package history

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testlocker"
)

// journal returns a journal, and what it has by then.
func journal(t *testing.T, process string) (*Journal, func() []byte) {
	file, err := os.Create(filepath.Join(t.TempDir(), process))
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return NewJournal(file, process), func() []byte {
		text, err := os.ReadFile(file.Name())
		require.NoError(t, err)
		return text
	}
}

// Two callers of a Locker over memory, from the ask to the return, and their places in the backend's queue.
func TestJournalSaysWhatHappened(t *testing.T) {
	j, text := journal(t, "a")
	backend := memlock.New()
	t.Cleanup(func() { require.NoError(t, backend.Close()) })
	lockers := []*wllock.Locker{testlocker.On(t, j.Places(backend)), testlocker.On(t, j.Places(backend), wllock.WithInstance("second"))}
	inside, failed := make(chan struct{}), errors.New("failed")
	var all sync.WaitGroup
	all.Go(func() {
		e := j.Ask(Request{Caller: "1", Key: "k", Deadline: Clock(time.Now().Add(time.Minute))})
		e.Back(lockers[0].Do(t.Context(), "n", "k", func(ctx context.Context) error {
			held, _ := wllock.HeldFrom(ctx)
			e.Held(held)
			close(inside)
			e.Note(Event{What: Read})
			e.Note(Event{What: Got, Was: 7})
			for !bytes.Contains(text(), []byte(`"queued"`)) {
				time.Sleep(time.Millisecond)
			}
			e.Note(Event{What: Write, Was: 7, New: 8})
			e.Leave(held)
			return failed
		}))
	})
	<-inside
	e := j.Ask(Request{Caller: "2", Key: "k", Shared: true})
	e.Back(lockers[1].Do(t.Context(), "n", "k", func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		e.Held(held)
		e.Leave(held)
		return nil
	}, wllock.Shared()))
	all.Wait()
	var h History
	require.NoError(t, h.Read(bytes.NewReader(text()), nil))
	require.Empty(t, h.Check(Rules{Late: time.Second}))
	byKey := h.byKey()
	require.Len(t, byKey["k"], 2)
	require.Len(t, byKey["queue of test:n:k"], 2)
	first, second := byKey["k"][0], byKey["k"][1]
	require.Equal(t, "failed", first.Error)
	require.Less(t, first.Held, first.Certain)
	require.Equal(t, first.Left, first.Certain)
	require.LessOrEqual(t, first.Left, second.Held)
	require.Less(t, first.Fence, second.Fence)
	require.True(t, second.Shared)
	require.Equal(t, []*Access{
		{Read: true, Fence: first.Fence, Was: 7, New: 7, From: first.Accesses[0].From, Until: first.Accesses[0].Until, Outcome: Got},
		{Fence: first.Fence, Was: 7, New: 8, From: first.Accesses[1].From, Until: forever},
	}, first.Accesses)
	place := byKey["queue of test:n:k"][1]
	require.Less(t, place.Asked, place.Queued)
	require.Less(t, place.Queued, place.Held)
	require.EqualError(t, h.Count().Enough(Need{Entries: 2}), "0 entries came while another process was inside, want 1 at least")
}

// A loss ends what was certain at the look before it. A process that says no more was certain as long as its lease lasts.
func TestCertainUntilTheLastLook(t *testing.T) {
	for name, one := range map[string]struct {
		lines string
		want  int64
	}{
		"released":                      {`{"at":20,"what":"held","until":99} {"at":30,"what":"leave","until":99} {"at":31,"what":"back"}`, 30},
		"killed":                        {`{"at":20,"what":"held","until":99}`, 99},
		"killed after another look":     {`{"at":20,"what":"held","until":99} {"at":25,"what":"held","until":120}`, 120},
		"lost":                          {`{"at":20,"what":"held","until":99} {"at":25,"what":"held","until":120} {"at":30,"what":"leave"}`, 25},
		"never":                         {`{"at":20,"what":"held"}`, 0},
		"lost and not known any more":   {`{"at":20,"what":"held"} {"at":25,"what":"held","until":120}`, 0},
		"degraded":                      {`{"at":20,"what":"held","alone":true} {"at":30,"what":"leave","alone":true}`, 0},
		"its function has not returned": {`{"at":20,"what":"held","until":99} {"at":31,"what":"back"}`, 20},
	} {
		t.Run(name, func(t *testing.T) {
			lines := `{"at":10,"what":"ask","key":"k"} ` + one.lines
			var h History
			text := strings.ReplaceAll(strings.ReplaceAll(lines, "} ", "}\n"), `"what"`, `"process":"a","call":1,"what"`) + "\n"
			require.NoError(t, h.Read(strings.NewReader(text), nil))
			require.Equal(t, one.want, h.Calls[0].Certain)
		})
	}
}

func TestDamagedJournalIsRefused(t *testing.T) {
	const ask, held = `{"at":10,"process":"a","what":"ask","call":1,"key":"k"}` + "\n", `{"at":20,"process":"a","what":"held","call":1}` + "\n"
	for name, one := range map[string]struct{ text, says string }{
		"whole":                   {ask + held, ""},
		"empty":                   {"", ""},
		"a torn last line":        {ask + held[:20], ""},
		"a last line without end": {ask + held[:len(held)-1], ""},
		"a torn line before":      {ask + held[:20] + "\n" + held, "line 2 of a journal: invalid character"},
		"no line":                 {ask + "\n" + held, "line 2 of a journal: unexpected end of JSON"},
		"a hole":                  {ask + strings.Repeat("\x00", 9) + held, "line 2 of a journal: invalid character"},
		"a lost line":             {held, `"held" of call 1, which was never asked`},
		"a call that is repeated": {ask + ask, `"ask" of call 1, which was never asked, twice`},
		"an answer alone":         {ask + strings.Replace(held, "held", "got", 1), `"got" without a read or a write before`},
		"a word of another time":  {ask + strings.Replace(held, "held", "hold", 1), `"hold" is no word of a journal`},
		"another process":         {ask + strings.Replace(held, `"a"`, `"b"`, 1), `process "b" at 20, in the journal of "a"`},
		"no time":                 {strings.Replace(ask, "10", "0", 1), `process "a" at 0`},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			err := h.Read(strings.NewReader(one.text), nil)
			if one.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, one.says)
		})
	}
	var h History
	require.NoError(t, h.Read(strings.NewReader(ask), nil))
	require.ErrorContains(t, h.Read(strings.NewReader(ask), nil), `process "a" has another journal`)
}

func TestGoroutinesShareAJournal(t *testing.T) {
	j, text := journal(t, "a")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				e := j.Ask(Request{Key: strings.Repeat("k", 3000)})
				e.Back(nil)
			}
		})
	}
	all.Wait()
	var h History
	require.NoError(t, h.Read(bytes.NewReader(text()), nil))
	require.Len(t, h.Calls, 800)
	for _, c := range h.Calls {
		require.Positive(t, c.Back)
	}
}
