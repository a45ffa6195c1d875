package distributed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Recorder is an optional ability of a Backend: it keeps how the latest runs of jobs under its locks ended. For each system it keeps the MaxJobs
// keys that were recorded last, each for at least RunMemory. All of them are gone RunMemory after the latest run.
type Recorder interface {
	Backend
	// Record stores a run that has ended, in place of the previous run of its key. It changes nothing if a run with a larger fence is stored. So
	// a repeat, or the record of a run that had lost its lock, may come late.
	Record(ctx context.Context, r Run) error
	// Runs returns the stored runs of a system's keys that begin with prefix, which is "system:", "system:name:" or a full name, in the order of
	// the keys. If there are none, that is no error.
	Runs(ctx context.Context, prefix string) ([]Runs, error)
}

// RecorderOf returns the Recorder of b, or of the backends that b wraps: a decorator has a method Unwrap() Backend.
func RecorderOf(b Backend) (Recorder, bool) { return inside[Recorder](b) }

const (
	// RunMemory is how long a service remembers the runs of a system after the latest one: longer than a quarter of a year, for quarterly jobs.
	RunMemory = 100 * 24 * time.Hour
	// MaxJobs is the number of keys of a system whose runs a service remembers.
	MaxJobs = 1000
	// RunOK is the Result of a run that succeeded.
	RunOK = "ok"
)

// Runs are what a service remembers of the runs under a lock.
type Runs struct {
	Last    Run
	Success Run // the latest run that succeeded. Its Began is zero if none has
}

// Run is one run of a job under a lock.
type Run struct {
	Key      string        // of the lock, the full name
	Instance string        // that ran it
	Began    time.Time     // by the clock of its process
	Took     time.Duration // until the job ended
	Result   string        // RunOK, or how the run failed, in a few words without data: "exit 3", "signal: killed", "lock lost"
	Until    time.Time     // the lock stays taken until then, although the job has ended. Zero: it does not
	Fence    uint64        // the first fence of the run. 0: there are no fences
}

// Ended returns when the job ended.
func (r Run) Ended() time.Time { return r.Began.Add(r.Took) }

// Check returns an error for a run that no service stores.
func (r Run) Check() error {
	for what, text := range map[string]string{"instance": r.Instance, "result": r.Result} {
		if text == "" || len(text) > maxReason || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return fmt.Errorf("record: %s: want 1 to %d bytes of text in one line", what, maxReason)
		}
	}
	if r.Key == "" || r.Began.IsZero() || r.Took < 0 {
		return errors.New("record: want a key, when the run began, and how long it took")
	}
	return nil
}
