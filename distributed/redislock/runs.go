package redislock

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/parts"
)

var _ distributed.Recorder = (*Backend)(nil)

// runKeys are the Redis keys that keep the runs of a system, see record.lua: in one slot of a cluster. No lock has this hash tag, because those
// that are no full names are letters and digits.
func runKeys(full string) []string {
	base := conn.SpaceOf(conn.SystemOf(full)) + "{wllock-runs}:"
	return []string{base + "l", base + "o", base + "t"}
}

// Record implements distributed.Recorder.
func (b *Backend) Record(ctx context.Context, r distributed.Run) error {
	if err := r.Check(); err != nil {
		return err
	}
	if b.client.Closed() {
		return distributed.ErrClosed
	}
	text, err := parts.RunText(r)
	if err != nil {
		return err
	}
	succeeded := 0
	if r.Result == distributed.RunOK {
		succeeded = 1
	}
	c := conn.NewCall(recordScript, runKeys(r.Key), r.Key, text, succeeded, distributed.RunMemory.Milliseconds(), distributed.MaxJobs,
		fenceArg(&r.Fence))
	_, err = b.s.ask(ctx, c, conn.OrphanTTL, breakBudget)
	return err
}

// Runs implements distributed.Recorder. It sends one command.
func (b *Backend) Runs(ctx context.Context, prefix string) ([]distributed.Runs, error) {
	if b.client.Closed() {
		return nil, distributed.ErrClosed
	}
	c := conn.NewCall(runsScript, runKeys(prefix), prefix)
	b.s.tr.Do(conn.Within(ctx, conn.LongestTry), c)
	if c.Err != nil {
		return nil, conn.Unavailable("runs", c.Err)
	}
	var texts []string
	if c.Reply != "{}" { // of an empty table
		if err := json.Unmarshal([]byte(c.Reply), &texts); err != nil {
			return nil, conn.Unavailable("runs", conn.Refusal(fmt.Errorf("the server answers %q: %w", c.Reply, err)))
		}
	}
	var all []distributed.Runs
	for pair := range slices.Chunk(texts, 2) {
		all = append(all, distributed.Runs{Last: parts.ReadRun(pair[0]), Success: parts.ReadRun(pair[1])})
	}
	slices.SortFunc(all, func(a, b distributed.Runs) int { return strings.Compare(a.Last.Key, b.Last.Key) })
	return all, nil
}
