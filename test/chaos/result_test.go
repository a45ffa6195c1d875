package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/test/history"
)

// result is what a run has shown.
type result struct {
	Backend    string              `json:"backend"`
	Shape      string              `json:"shape"`
	Store      string              `json:"store"`
	Began      time.Time           `json:"began"`
	Seconds    float64             `json:"seconds"`
	Commit     string              `json:"commit"`
	Go         string              `json:"go"`
	Seed       uint64              `json:"seed"`
	Processes  int                 `json:"processes"`
	Operations int                 `json:"operations"` // calls
	Entries    int                 `json:"entries"`
	Contended  int                 `json:"contended"`
	Accesses   int                 `json:"accesses"` // to the accounts
	Refused    int                 `json:"refused"`  // of them, by the store
	Faults     map[string]int      `json:"faults"`
	Recoveries map[string]recovery `json:"recoveries"`
	Violations []violation         `json:"violations"`
}

type violation struct {
	Rule string `json:"rule"`
	Text string `json:"text"`
}

func (r *run) result(n history.Counts, ended time.Time, found []history.Violation) result {
	res := result{
		Backend: r.backend, Shape: r.shape, Store: r.store, Began: r.began.UTC().Truncate(time.Second), Seconds: ended.Sub(r.began).Seconds(),
		Go: runtime.Version(), Seed: r.seed, Processes: r.size, Entries: n.Entries, Contended: n.Contended, Faults: r.done,
		Recoveries: recoveries(r.waits, r.Calls), Violations: []violation{},
	}
	for _, c := range r.Calls {
		if isQueue(c) {
			continue
		}
		res.Operations++
		res.Accesses += len(c.Accesses)
		for _, a := range c.Accesses {
			if a.Outcome == history.Refused {
				res.Refused++
			}
		}
	}
	for _, v := range found {
		res.Violations = append(res.Violations, violation{v.Rule, v.String()})
	}
	return res
}

// write writes the result to a folder. "": there is none.
func (r result) write(t *testing.T, folder string) {
	if folder == "" {
		return
	}
	commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
	require.NoError(t, err, "the commit of the result")
	r.Commit = strings.TrimSpace(string(commit))
	text, err := json.MarshalIndent(r, "", "\t")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("chaos-%s-%s-%s.json", r.Backend, r.Shape, r.Store)), append(text, '\n'), 0o644))
}
