package locktest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
)

var runCases = recorded([]Case{
	{"the latest run of a key is kept, and the latest that has succeeded", func(e *env, key string) {
		system := systemFor(key)
		failed := run(system+"n:1", "exit 3")
		e.record(failed)
		e.runs(system, distributed.Runs{Last: failed})
		good := run(system+"n:1", distributed.RunOK)
		good.Until, good.Fence = good.Ended().Add(time.Hour), 1<<62+1
		e.record(good, good)
		e.runs(system, distributed.Runs{Last: good, Success: good})
		late := run(system+"n:1", "lock lost")
		late.Fence = good.Fence - 1
		e.record(late)
		e.runs(system, distributed.Runs{Last: good, Success: good})
		failed = run(system+"n:1", "lock lost")
		failed.Fence = good.Fence + 1
		other := run(system+"n:10", distributed.RunOK)
		e.record(failed, other, run(system+"other:1", distributed.RunOK))
		both := []distributed.Runs{{Last: failed, Success: good}, {Last: other, Success: other}}
		e.runs(system+"n:", both...)
		e.runs(system+"n:10", both[1])
		e.runs(system + "none:")
	}},
	{"runs of many keys are kept of those that were recorded last", func(e *env, key string) {
		system := systemFor(key)
		name := func(i int) string { return fmt.Sprintf("%sn:%04d", system, i) }
		e.record(run(name(0), distributed.RunOK), run(name(1), distributed.RunOK))
		time.Sleep(2 * time.Millisecond)
		e.record(run(name(0), distributed.RunOK))
		time.Sleep(2 * time.Millisecond)
		for i := range distributed.MaxJobs - 1 {
			e.record(run(name(i+2), distributed.RunOK))
		}
		if all := e.runsOf(system); len(all) != distributed.MaxJobs || all[0].Last.Key != name(0) || all[1].Last.Key != name(2) {
			e.Errorf("%d keys, the first two are %s and %s", len(all), all[0].Last.Key, all[1].Last.Key)
		}
	}},
	{"a run that makes no sense is an error", func(e *env, key string) {
		r, _ := distributed.RecorderOf(e.Backend)
		for _, change := range []func(*distributed.Run){
			func(r *distributed.Run) { r.Key = "" }, func(r *distributed.Run) { r.Began = time.Time{} }, func(r *distributed.Run) { r.Took = -1 },
			func(r *distributed.Run) { r.Result = "" }, func(r *distributed.Run) { r.Instance = "a\nb" },
			func(r *distributed.Run) { r.Result = strings.Repeat("x", 201) },
		} {
			one := run(systemFor(key)+"n:1", distributed.RunOK)
			change(&one)
			if err := try(func(ctx context.Context) error { return r.Record(ctx, one) }); err == nil {
				e.Errorf("Record(%+v): want an error", one)
			}
		}
	}},
})

// recorded skips cases for services that keep no runs.
func recorded(cases []Case) []Case {
	for i, c := range cases {
		cases[i].run = func(e *env, key string) {
			if _, able := distributed.RecorderOf(e.Backend); !able {
				e.Skipf("runs")
			}
			c.run(e, key)
		}
	}
	return cases
}

// systemFor is a system of the case's own, with its colon: what is kept is kept by system.
func systemFor(key string) string {
	return "runs-" + strings.Map(func(r rune) rune {
		if r == ':' {
			return '-'
		}
		return r
	}, key) + ":"
}

// run is one that ends now.
func run(key, result string) distributed.Run {
	const took = 90 * time.Second
	return distributed.Run{Key: key, Instance: "host-abc", Began: time.Now().Add(-took).Truncate(time.Millisecond), Took: took, Result: result}
}

func (e *env) record(runs ...distributed.Run) {
	e.Helper()
	r, _ := distributed.RecorderOf(e.Backend)
	for _, one := range runs {
		if err := try(func(ctx context.Context) error { return r.Record(ctx, one) }); err != nil {
			e.Fatalf("Record: %v", err)
		}
	}
}

func (e *env) runsOf(prefix string) (all []distributed.Runs) {
	e.Helper()
	r, able := distributed.RecorderOf(e.open[len(e.open)-1])
	if !able { // of which the other process is not decorated as this one is
		r, _ = distributed.RecorderOf(e.Backend)
	}
	err := try(func(ctx context.Context) (err error) {
		all, err = r.Runs(ctx, prefix)
		return err
	})
	if err != nil {
		e.Fatalf("Runs: %v", err)
	}
	return all
}

// runs asserts what another process reads.
func (e *env) runs(prefix string, want ...distributed.Runs) {
	e.Helper()
	got := e.runsOf(prefix)
	same := func(a, b distributed.Run) bool {
		return a.Began.Equal(b.Began) && a.Until.Equal(b.Until) && a.Key == b.Key && a.Instance == b.Instance && a.Took == b.Took && a.Result == b.Result &&
			a.Fence == b.Fence
	}
	equal := len(got) == len(want)
	for i := 0; equal && i < len(got); i++ {
		equal = same(got[i].Last, want[i].Last) && same(got[i].Success, want[i].Success)
	}
	if !equal {
		e.Fatalf("runs of %s: %+v, want %+v", prefix, got, want)
	}
}
