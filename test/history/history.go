package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"
)

// forever is when something ends whose end is not known.
const forever = math.MaxInt64

// History is what the journals of a run say.
type History struct {
	mu     sync.Mutex // guards all below while journals are read
	Calls  []*Call
	Faults []Event
	Ends   map[string]int64 // when each process wrote its last line
}

// Call is what a caller asked for, and what became of it. A time of 0 is one that did not come.
type Call struct {
	Request
	Process   string
	Asked     int64
	Queued    int64 // it had a place by then
	Held      int64 // its function began
	Certain   int64 // up to then, from Held on, it was certain of its lease. 0: it never was
	Admitted  int64 // up to then, from Held on, its process let it work, with a lease or without. 0: never
	Left      int64 // its function ended
	Back      int64
	Fence     uint64
	Error     string
	Accesses  []*Access
	looked    int64 // when it was last certain
	unfounded bool  // it knows that its lease is lost
}

// Access is a read of the data, or a write.
type Access struct {
	Read        bool
	Fence       uint64 // 0: the store compares none, as for a reader
	Was, New    int64  // the same of a read
	From, Until int64  // forever: there was no answer
	Outcome     What   // Got, Wrote, Refused, or empty without an answer
}

func (a *Access) String() string {
	text := fmt.Sprintf("wrote %d", a.New)
	if a.Read {
		text = fmt.Sprintf("read %d", a.Was)
	}
	switch a.Outcome {
	case Refused:
		text = "refused"
	case "":
		text += "?"
	}
	return text
}

// exit is when a call ceased to be inside.
func (c *Call) exit() int64 { return cmp.Or(c.Left, c.Back, forever) }

// end is the last that is known of a call.
func (c *Call) end() int64 { return max(c.Asked, c.Held, c.Certain, c.Left, c.Back) }

// String names a call in findings.
func (c *Call) String() string {
	as := ""
	switch {
	case c.Shared:
		as = ", a reader"
	case c.Permits > 0:
		as = fmt.Sprintf(", one of %d permits", c.Permits)
	}
	return fmt.Sprintf("%s/%s (fence %d%s)", c.Process, c.Caller, c.Fence, as)
}

// Read adds the journal of a process to its end. Several may be read at a time. each, unless it is nil, is called with every line and the
// call that it is about, nil for a fault. A line without its end is the last that a killed process wrote, and is left out. Any other that
// cannot be read, or that does not follow from those before, is an error.
func (h *History) Read(journal io.Reader, each func(Event, *Call)) error {
	calls, process := map[int64]*Call{}, ""
	in := bufio.NewReader(journal)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		var e Event
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if n == 1 {
			process = e.Process
		}
		switch {
		case err != nil:
		case e.Process == "" || e.Process != process || e.At <= 0:
			err = fmt.Errorf("a line of process %q at %d, in the journal of %q", e.Process, e.At, process)
		default:
			err = h.add(calls, e, n == 1)
		}
		if err != nil {
			return fmt.Errorf("history: line %d of a journal: %w: %.200q", n, err, line)
		}
		if each != nil {
			each(e, calls[e.Call])
		}
	}
}

func (h *History) add(calls map[int64]*Call, e Event, first bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Ends == nil {
		h.Ends = map[string]int64{}
	}
	if first && h.Ends[e.Process] > 0 {
		return fmt.Errorf("process %q has another journal", e.Process)
	}
	h.Ends[e.Process] = max(h.Ends[e.Process], e.At)
	c := calls[e.Call]
	switch {
	case e.What == Faulty:
		h.Faults = append(h.Faults, e)
	case e.What == Ask && c == nil && e.Call > 0:
		calls[e.Call] = &Call{Request: e.Request, Process: e.Process, Asked: e.At}
		h.Calls = append(h.Calls, calls[e.Call])
	case e.What == Ask || c == nil || c.Back > 0:
		return fmt.Errorf("%q of call %d, which was never asked, twice, or is back", e.What, e.Call)
	default:
		return c.Note(e)
	}
	return nil
}

// Note adds a line that follows the question. Its time is by any clock, the same for all calls of a History. A simulation without journals calls it
// for each step, at its own time.
func (c *Call) Note(e Event) error {
	switch e.What {
	case Queued:
		c.Queued = e.At
	case Held, Leave:
		c.look(e)
	case Back:
		c.Back, c.Error = e.At, e.Error
		if c.Left == 0 {
			c.Certain = c.looked
		}
	case Read, Write:
		a := &Access{Read: e.What == Read, Was: e.Was, New: e.New, From: e.At, Until: forever}
		if c.exclusive() {
			a.Fence = c.Fence
		}
		c.Accesses = append(c.Accesses, a)
	case Got, Wrote, Refused:
		if len(c.Accesses) == 0 || c.Accesses[len(c.Accesses)-1].Outcome != "" {
			return fmt.Errorf("%q without a read or a write before", e.What)
		}
		a := c.Accesses[len(c.Accesses)-1]
		if a.Outcome, a.Until = e.What, e.At; e.What == Got {
			a.Was, a.New = e.Was, e.Was
		}
	default:
		return fmt.Errorf("%q is no word of a journal", e.What)
	}
	return nil
}

// look is what the caller knows of its lease: see the package.
func (c *Call) look(e Event) {
	if c.Held == 0 {
		c.Held, c.Fence = e.At, e.Fence
	}
	if e.What == Leave {
		c.Left = e.At
	}
	if e.Until > 0 || e.Alone {
		c.Admitted = e.At
	}
	switch c.unfounded = c.unfounded || e.Until == 0; {
	case c.unfounded:
		c.Certain = c.looked
	case e.What == Leave:
		c.Certain, c.looked = e.At, e.At
	default:
		c.Certain, c.looked = max(e.At, e.Until), e.At
	}
}

// byKey are the calls for each key, in the order in which they were made.
func (h *History) byKey() map[string][]*Call {
	of := map[string][]*Call{}
	for _, c := range h.Calls {
		of[c.Key] = append(of[c.Key], c)
	}
	for _, calls := range of {
		slices.SortStableFunc(calls, func(a, b *Call) int { return cmp.Compare(a.Asked, b.Asked) })
	}
	return of
}

// since is a time as pictures and findings have it, from the first call on.
func (h *History) since(at int64) time.Duration {
	first := int64(forever)
	for _, c := range h.Calls {
		first = min(first, c.Asked)
	}
	return time.Duration(at - first).Round(time.Microsecond)
}
