package simulated

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// often are requests that a hundred schedules make often enough to meet each fate.
var often = []string{"enter", "release", "echo", "longest TTL", "get", "get many", "put", "delete"}

// seldom are those that only thousands of schedules make so often.
var seldom = []string{"enter without wait", "leave", "refill", "downgrade", "detach", "adopt", "discard"}

// answers are what requests are answered, what calls come to, what happens to processes, and the states in which their locks are seen, in each
// hundred schedules.
var answers = []string{
	"enter: granted", "enter: queued", "enter without wait: granted", "enter without wait: held", "grant: in time", "grant: late",
	"put: conflict", "delete: conflict", "refill: answered", "downgrade: answered", "leave: answered", "leave: lost",
	"detach: answered", "adopt: answered", "discard: answered", "enter without wait: answered",

	"call: ok", "call: held", "call: wait timeout", "call: canceled", "call: queue full", "call: unavailable", "call: lease lost",
	"adopt: ok", "release of a token: ok",

	"fault: a process dies", "fault: a process is cut off", "fault: a process stands still", "fault: the service is away",

	"state: held", "state: read by several", "state: several permits", "state: a line", "state: a place", "state: lingering", "state: staying",
	"state: releasing", "state: handed on", "state: downgraded", "state: detached", "state: degraded", "state: ended degraded", "state: lost",
	"state: overstayed",
}

// rare are further ones, which thousands of schedules show.
var rare = []string{
	"call: lock time max", "adopt: lease lost", "adopt: unavailable", "release of a token: unavailable", "state: became degraded", "state: a late writer was refused",
}

// requires fails if something was never seen.
func (s *seen) requires(t *testing.T, long bool) {
	t.Helper()
	met := func(kinds []string) {
		for _, kind := range kinds {
			for _, f := range append([]fate{answered}, drawn...) {
				if f != doubled || kind != "enter" && kind != "enter without wait" {
					assert.Positive(t, s.of[fmt.Sprint(kind, ": ", f)], "%s: %s was never seen", kind, f)
				}
			}
		}
	}
	met(often)
	wanted := answers
	if long {
		met(seldom)
		wanted = append(wanted, rare...)
	}
	for _, what := range wanted {
		assert.Positive(t, s.of[what], "%s was never seen", what)
	}
}
