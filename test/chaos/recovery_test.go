package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/test/history"
)

// wait is one for the first call that enters after a fault.
type wait struct {
	name  string
	since int64
	fits  func(*history.Call) bool
}

// measure has the time be measured from now on, until a call enters that fits.
func (f *fleet) measure(name string, fits func(*history.Call) bool) {
	f.waits = append(f.waits, wait{name, history.Now(), fits})
}

// others are the calls of other processes for a key.
func others(p *process, key string) func(*history.Call) bool {
	name := p.Name
	return func(c *history.Call) bool { return c.Key == key && c.Process != name }
}

// queueOf is the key of a lock in calls of the backend: see history.Journal.Places.
func queueOf(key string) string { return "queue of " + system + ":" + name + ":" + key }

func isQueue(c *history.Call) bool { return strings.HasPrefix(c.Key, queueOf("")) }

// recovery is how long it took until a call entered again.
type recovery struct {
	N      int     `json:"n"`
	Median float64 `json:"median_ms"`
	Max    float64 `json:"max_ms"`
}

// recoveries are those of a run, by their names. A wait after which no call entered is none.
func recoveries(waits []wait, calls []*history.Call) map[string]recovery {
	took := map[string][]float64{}
	for _, w := range waits {
		first := int64(0)
		for _, c := range calls {
			if c.Held > w.since && (first == 0 || c.Held < first) && w.fits(c) {
				first = c.Held
			}
		}
		if first > 0 {
			took[w.name] = append(took[w.name], float64(first-w.since)/float64(time.Millisecond))
		}
	}
	all := map[string]recovery{}
	for name, ms := range took {
		slices.Sort(ms)
		all[name] = recovery{len(ms), ms[len(ms)/2], ms[len(ms)-1]}
	}
	return all
}

// The first call counts that enters after the fault and fits, whichever asked first.
func TestRecoveries(t *testing.T) {
	const ms = int64(time.Millisecond)
	call := func(process, key string, held int64) *history.Call {
		return &history.Call{Process: process, Request: history.Request{Key: key}, Held: held * ms}
	}
	dead := &process{Process: &history.Process{Name: "dead"}}
	waits := []wait{
		{"killed holder", 100 * ms, others(dead, "1")}, {"killed holder", 200 * ms, others(dead, "1")}, {"killed holder", 300 * ms, others(dead, "1")},
		{"killed holder", 900 * ms, others(dead, "1")}, {"service is back", 100 * ms, isQueue},
	}
	got := recoveries(waits, []*history.Call{
		call("a", "1", 99), call("a", "1", 0), call("b", "1", 150), call("a", "1", 120), call("a", "2", 101), call("dead", "1", 102),
		call("a", "1", 203), call("a", "1", 307), call("a", queueOf("1"), 131),
	})
	require.Equal(t, map[string]recovery{"killed holder": {3, 7, 20}, "service is back": {1, 31, 31}}, got)
}
