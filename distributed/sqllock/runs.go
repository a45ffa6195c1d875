package sqllock

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/parts"
)

var _ distributed.Recorder = (*Backend)(nil)

// trimEvery is after how many records, about, the table is trimmed. A process may record one run in its life, so that chance decides.
const trimEvery = 64

// Record implements distributed.Recorder. It sends one statement.
func (b *Backend) Record(ctx context.Context, r distributed.Run) error {
	if err := r.Check(); err != nil {
		return err
	}
	text, err := parts.RunText(r)
	if err != nil {
		return err
	}
	fence, success, succeeded := int64(min(r.Fence, math.MaxInt64)), "", int64(-1)
	if r.Result == distributed.RunOK {
		success, succeeded = text, fence
	}
	name, _ := storedName(r.Key)
	q := b.st().of(recordRun)
	err = b.aside(ctx, "record", func(ctx context.Context) error {
		_, err := b.db.ExecContext(ctx, q.text, q.args(name, fence, text, succeeded, success)...)
		return err
	})
	if err == nil && rand.N(trimEvery) == 0 { // the run is recorded, whatever becomes of this: a later record trims
		_ = b.aside(ctx, "record", func(ctx context.Context) error { return b.trim(ctx, name) })
	}
	return err
}

// trim deletes the runs of a name's system beyond those that are kept. The reaper deletes those that are old.
func (b *Backend) trim(ctx context.Context, name string) error {
	var more []string
	q := b.st().of(moreRuns)
	system, _, _ := strings.Cut(name, ":")
	if system += ":"; name[0] == hashMark { // hashes are one system
		system = string(hashMark)
	}
	err := b.rows(ctx, b.db, q.text, q.args(system, system+lastRune, distributed.MaxJobs), func(scan func(...any) error) error {
		more = append(more, "")
		return scan(&more[len(more)-1])
	})
	if err == nil && len(more) > 0 {
		text, args := b.st().list(b.st().text(forgetRuns), more)
		_, err = b.db.ExecContext(ctx, text, args...)
	}
	return err
}

// Runs implements distributed.Recorder. It asks for the names that begin so, and looks at all that are stored as hashes.
func (b *Backend) Runs(ctx context.Context, prefix string) ([]distributed.Runs, error) {
	var all []distributed.Runs
	q := b.st().of(latestRuns)
	err := b.aside(ctx, "runs", func(ctx context.Context) error {
		all = nil
		for _, from := range []string{prefix, string(hashMark)} {
			err := b.rows(ctx, b.db, q.text, q.args(from, from+lastRune, distributed.MaxJobs), func(scan func(...any) error) error {
				var latest, success string
				err := scan(&latest, &success)
				if r := (distributed.Runs{Last: parts.ReadRun(latest), Success: parts.ReadRun(success)}); strings.HasPrefix(r.Last.Key, prefix) {
					all = append(all, r)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b distributed.Runs) int { return strings.Compare(a.Last.Key, b.Last.Key) })
	return all, err
}

// aside is ask for what no lock depends on: that the table of runs is not there, or is not ours to use, says nothing of the backend's health.
func (b *Backend) aside(ctx context.Context, what string, fn func(context.Context) error) error {
	var answer error
	err := b.ask(ctx, what, func(ctx context.Context) error {
		answer = fn(ctx)
		if answer != nil && (effectOf(answer) == missing || effectOf(answer) == refused) {
			return nil
		}
		return answer
	})
	if err == nil {
		err = explain(what, answer)
	}
	return err
}
