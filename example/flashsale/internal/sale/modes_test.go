package sale

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// modeSale runs the comparison and returns the lines of its table.
func modeSale(t *testing.T, flags string) []Report {
	t.Helper()
	status, stdout, stderr := play(t.Context(), strings.Fields("-json -ramp 0s -wait 1m "+longLease+flags)...)
	require.Equal(t, StatusOK, status, stderr)
	assert.Contains(t, stderr, "drops and creates its own tables flashsale_stock and flashsale_orders in ")
	assert.NotContains(t, stderr, "secret")
	var got struct {
		Modes []Report `json:"modes"`
		Tried []Report `json:"tried"`
		OK    bool     `json:"ok"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	assert.True(t, got.OK)
	assert.NotEmpty(t, got.Tried)
	for _, r := range got.Tried {
		assert.Zero(t, r.Failed, "%s: %s", r.Round, r.Failure)
		assert.Equal(t, r.Told, r.Sold, r.Round)
		if r.Round != "none" {
			assert.Zero(t, r.Twice, r.Round)
		}
	}
	return got.Modes
}

func TestModesOnATemporaryFile(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	got := modeSale(t, "-db sqlite -instances 2 -buyers 15 -stock 10 -threshold 100 -pool 1,2 -rounds 1")
	require.Len(t, got, len(modes))
	for i, r := range got {
		assert.Equal(t, modes[i].Title, r.Round)
		assert.GreaterOrEqual(t, r.Sold, 10)
		assert.Equal(t, 2*15, r.Sold+r.SoldOut+r.Refused, "each buyer gets one answer")
		assert.Positive(t, r.Statements)
		assert.LessOrEqual(t, r.P50, r.P99)
		assert.Positive(t, r.OthersP99)
		assert.Equal(t, modes[i].Locked, r.Requests > 0)
		assert.Nil(t, r.CPU, "there is no server")
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	require.NoError(t, err)
	assert.Empty(t, left, "the database is removed")
}

func TestModesOnServers(t *testing.T) {
	testscope.Long(t, "plays whole sales or runs")
	t.Parallel()
	redis := "redis://" + redistest.Start(t).Addr
	for name, url := range map[string]string{"MariaDB": dbtest.SharedMariaDB(t).URL(), "PostgreSQL": dbtest.SharedPostgres(t).URL()} {
		t.Run(name, func(t *testing.T) {
			got := modeSale(t, "-procs 2 -buyers 10 -stock 10 -threshold 100 -pool 2 -db "+url+" -backend "+redis)
			require.Len(t, got, len(modes))
			for _, r := range got {
				assert.GreaterOrEqual(t, r.Sold, 10, r.Round)
				assert.NotNil(t, r.CPU, "the server runs on this machine")
			}
		})
	}
}

func TestModesOfSeveralProcessesOverOneFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	for range 2 { // the second time over its own tables
		got := modeSale(t, "-procs 2 -buyers 10 -stock 10 -pool 2 -mode statement,pessimistic -db sqlite:"+file)
		require.Len(t, got, 2)
		assert.Equal(t, 10, got[0].Sold)
	}
	require.FileExists(t, file)
}

func TestAWayThatBreaksItsPromise(t *testing.T) {
	cases := map[string]struct {
		mode   string
		of     sqlshop.Audit
		told   int
		status int
	}{
		"all sold":                       {"statement", sqlshop.Audit{Sold: 10}, 10, StatusOK},
		"some left":                      {"statement", sqlshop.Audit{Sold: 7, Left: 3}, 7, StatusOK},
		"oversold":                       {"statement", sqlshop.Audit{Sold: 11}, 11, StatusFailed},
		"oversold without a promise":     {"none", sqlshop.Audit{Sold: 11}, 11, StatusOK},
		"a piece sold twice":             {"optimistic", sqlshop.Audit{Sold: 8, Left: 3}, 8, StatusFailed},
		"a piece that nobody has":        {"pessimistic", sqlshop.Audit{Sold: 6, Left: 3}, 6, StatusFailed},
		"an order that nobody was told":  {"optimistic", sqlshop.Audit{Sold: 10}, 9, StatusFailed},
		"a buyer without an order":       {"none", sqlshop.Audit{Sold: 10}, 11, StatusFailed},
		"fences out of order":            {"lock", sqlshop.Audit{Sold: 10, OutOfOrder: 1}, 10, StatusFailed},
		"a batch has one fence":          {"batch", sqlshop.Audit{Sold: 10, OutOfOrder: 9}, 10, StatusOK},
		"a batch after a later one":      {"batch", sqlshop.Audit{Sold: 10, OutOfOrder: 9, Fallen: 1}, 10, StatusFailed},
		"a round":                        {"wllock", sqlshop.Audit{Sold: 7, Left: 3}, 7, StatusOK},
		"a round with a piece too many":  {"wllock", sqlshop.Audit{Sold: 11}, 11, StatusFailed},
		"a round without wllock":         {"one tier", sqlshop.Audit{Sold: 11}, 11, StatusOK},
		"no fences where there are none": {"statement", sqlshop.Audit{Sold: 10, OutOfOrder: 10}, 10, StatusOK},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			r := NewReport(wayOf(c.mode), 10, c.of, Result{Bought: c.told})
			s := contest{Settings: Settings{Stock: 10}, stderr: &errs}
			tried := []Report{r}
			if slices.Contains(titles(modes), c.mode) {
				tried[0].Pool, s.Modes = 4, []string{c.mode}
			} else {
				tried = slices.Repeat(tried, len(Rounds))
			}
			assert.Equal(t, c.status, s.conclude(tried, &out))
			assert.Equal(t, c.status == StatusFailed, strings.Contains(errs.String(), " did not keep its promise"))
			assert.Equal(t, s.Modes != nil, strings.Contains(out.String(), "write UPDATE ... WHERE qty > 0"))
		})
	}
}

func TestTheMedianAndTheBest(t *testing.T) {
	report := func(mode string, pool int, rate float64) Report {
		return Report{Round: mode, Pool: pool, OrdersPerSecond: rate}
	}
	broken := Report{Round: "lock", Sold: 1}
	assert.InDelta(t, 2, median([]Report{report("none", 1, 3), report("none", 1, 1), report("none", 1, 2)}).OrdersPerSecond, 0)
	assert.Equal(t, broken, median([]Report{report("lock", 1, 3), broken}), "a broken promise is never left out")
	quick := report("none", 1, 95)
	quick.OthersP99 = 1
	slow := report("none", 4, 100)
	slow.OthersP99 = 2
	assert.Equal(t, []Report{quick, broken}, best([]Report{slow, quick, report("none", 16, 89), report("lock", 1, 1), broken, broken}, 3),
		"95 is as good as 100, and others wait less; 89 is not")
}

// TestTheLockInTheDatabaseOfTheStock has the databases of servers.
func TestASaleOverEachLockService(t *testing.T) {
	testscope.Long(t, "plays whole sales or runs")
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"etcd":      func(t *testing.T) string { return "etcd://" + etcdtest.Start(t).Addr },
		"ZooKeeper": func(t *testing.T) string { return "zk://" + zktest.Start(t).Addr + "/sale" },
		"SQLite":    func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "locks.db") },
	} {
		t.Run(name, func(t *testing.T) {
			status, _, stderr := play(t.Context(), strings.Fields(longLease+"-wait 1m -buyers 20 -stock 10 -ramp 20ms -backend "+url(t))...)
			require.Equal(t, StatusOK, status, stderr)
		})
	}
}

// The lock in the same database as the stock, so that a database is all it takes. Not on SQLite, where the lock and the orders
// would wait for each other: a file has one writer at a time.
func TestTheLockInTheDatabaseOfTheStock(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"PostgreSQL": func(t *testing.T) string { return dbtest.SharedPostgres(t).URL() },
		"MariaDB":    func(t *testing.T) string { return dbtest.SharedMariaDB(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			db := url(t)
			got := modeSale(t, "-procs 2 -mode lock -buyers 5 -stock 10 -threshold 100 -pool 2 -db "+db+" -backend "+db)
			require.Len(t, got, 1)
			assert.Equal(t, 10, got[0].Sold)
		})
	}
}
