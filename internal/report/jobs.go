package report

import (
	"slices"
	"sync"

	"github.com/wllock/wllock/distributed"
)

// jobLimit is how many jobs are remembered: more than one reads.
const jobLimit = 50

// jobs remembers how the jobs of this process ended, each job's latest run. A job ends seldom, so one mutex serves all.
type jobs struct {
	mu     sync.Mutex
	latest []distributed.Run // guarded by mu, in the order in which they ended
}

func (j *jobs) ended(r distributed.Run) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.latest = append(slices.DeleteFunc(j.latest, func(one distributed.Run) bool { return one.Key == r.Key }), r)
	if len(j.latest) > jobLimit {
		j.latest = slices.Delete(j.latest, 0, 1)
	}
}

// Runs returns the latest run of each of the 50 jobs that ended last in this process, the latest first, with their names as they are shown.
func (o *Observer) Runs() []distributed.Run {
	o.jobs.mu.Lock()
	runs := slices.Clone(o.jobs.latest)
	o.jobs.mu.Unlock()
	slices.Reverse(runs)
	for i := range runs {
		runs[i].Key = o.Redaction.Name(runs[i].Key)
	}
	return runs
}
