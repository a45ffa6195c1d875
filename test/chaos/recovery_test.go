package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/test/history"
)

// wait is one for calls that enter after a fault: for the first that fits, of each kind.
type wait struct {
	name  string
	since int64
	fit   []func(*history.Call) bool
}

// measure has the time be measured from now on, until such calls enter.
func (f *fleet) measure(name string, fit ...func(*history.Call) bool) {
	f.waits = append(f.waits, wait{name, history.Now(), fit})
}

// measureAll has it be measured until each account has been entered with a lease that the service has granted since.
func (f *fleet) measureAll(name string) {
	var all []func(*history.Call) bool
	for i := range f.task.Accounts {
		key := queueOf(fmt.Sprint(i))
		all = append(all, func(c *history.Call) bool { return c.Key == key })
	}
	f.measure(name, all...)
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
		if at, entered := w.over(calls); entered {
			took[w.name] = append(took[w.name], float64(at-w.since)/float64(time.Millisecond))
		}
	}
	all := map[string]recovery{}
	for name, ms := range took {
		slices.Sort(ms)
		all[name] = recovery{len(ms), (ms[(len(ms)-1)/2] + ms[len(ms)/2]) / 2, ms[len(ms)-1]}
	}
	return all
}

// over is when a call of each kind had entered.
func (w wait) over(calls []*history.Call) (at int64, entered bool) {
	for _, fits := range w.fit {
		first := int64(0)
		for _, c := range calls {
			if c.Held > w.since && (first == 0 || c.Held < first) && fits(c) {
				first = c.Held
			}
		}
		if first == 0 {
			return 0, false
		}
		at = max(at, first)
	}
	return at, true
}

// The first call counts that enters after the fault and fits, whichever asked first.
func TestRecoveries(t *testing.T) {
	const ms = int64(time.Millisecond)
	call := func(process, key string, held int64) *history.Call {
		return &history.Call{Process: process, Request: history.Request{Key: key}, Held: held * ms}
	}
	dead := &process{Process: &history.Process{Name: "dead"}}
	first := []func(*history.Call) bool{others(dead, "1")}
	waits := []wait{
		{"killed holder", 100 * ms, first}, {"killed holder", 200 * ms, first}, {"killed holder", 300 * ms, first}, {"killed holder", 900 * ms, first},
		{"service is back", 100 * ms, []func(*history.Call) bool{isQueue, others(dead, "2")}},
		{"service is back", 110 * ms, []func(*history.Call) bool{isQueue, others(dead, "2")}}, // of which the second never came
	}
	got := recoveries(waits, []*history.Call{
		call("a", "1", 99), call("a", "1", 0), call("b", "1", 150), call("a", "1", 120), call("a", "2", 101), call("dead", "1", 102),
		call("a", "1", 203), call("a", "1", 307), call("a", queueOf("1"), 131),
	})
	require.Equal(t, map[string]recovery{"killed holder": {3, 7, 20}, "service is back": {1, 31, 31}}, got)
}
