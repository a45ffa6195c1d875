package dbtest

import (
	"maps"
	"strings"

	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testscope"
)

// Tested returns what a run tests of what there is for each database, by its name: under the race detector PostgreSQL alone. All have the
// same code, and SQLite, which is Go as well, takes ten times as long there. `make test-all` runs the others without the detector, and
// `make test-long` all under it.
func Tested[T any](all map[string]T) map[string]T {
	if !testscope.Scale(race.Enabled, false) {
		return all
	}
	some := maps.Clone(all)
	maps.DeleteFunc(some, func(name string, _ T) bool { return !strings.HasPrefix(name, "postgres") })
	return some
}
