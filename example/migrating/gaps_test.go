package migrating

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
)

// TestGaps measures the table of docs/migrating.md: one process of the other library beside two on wllock, two callers in each, 2 ms under
// the lock, for each gap. The callers of wllock are always in line, or pause as long as the other library's do.
func TestGaps(t *testing.T) {
	testscope.Longest(t, "a measurement, three minutes")
	const seconds = 4
	polling := map[string]library{
		"redsync, 50 to 250 ms": libraries["redsync"],
		"redislock, 100 ms":     {libraries["redislock"].pattern, 0, one, openBSM(100 * time.Millisecond)},
		"redislock, 10 ms":      {libraries["redislock"].pattern, 0, one, openBSM(10 * time.Millisecond)},
		"rueidislock":           libraries["rueidislock, 1"],
	}
	var table strings.Builder
	for name, l := range polling {
		for _, pause := range []time.Duration{0, 50 * time.Millisecond} {
			for _, gap := range []time.Duration{0, 5, 20, 60, 120, 260} {
				gap *= time.Millisecond
				s := redistest.Start(t)
				c := &crowd{callers: 2, work: 2 * time.Millisecond, pause: pause}
				ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
				c.start(ctx, []service{
					l.old(t, s, "theirs"), ours(t, s, "ours", l, gap), ours(t, s, "ours", l, gap),
				}, func() {})
				cancel()
				c.check(t)
				fmt.Fprintf(&table, "| %s | %v | %v | %d | %d | %v |\n", name, pause, gap, c.turns["theirs"]/seconds, c.turns["ours"]/seconds, c.waits["theirs"])
			}
		}
	}
	t.Log("\n" + table.String())
}
