package stage

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/example/flashsale/internal/sale"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// send sends a request over a connection of its own.
func send(t *testing.T, method, address, form string) *http.Response {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(r)
	require.NoError(t, err)
	return resp
}

// watch returns the first state for which ok holds.
func watch(t *testing.T, page string, ok func(pageState) bool) (state pageState) {
	t.Helper()
	resp := send(t, http.MethodGet, page+"face/events", "")
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, found := strings.CutPrefix(lines.Text(), "data: "); found {
			state = pageState{}
			require.NoError(t, json.Unmarshal([]byte(data), &state))
			if ok(state) {
				return state
			}
		}
	}
	t.Fatalf("the events have ended: %v", lines.Err())
	return state
}

func press(t *testing.T, page, path string, form url.Values) int {
	t.Helper()
	resp := send(t, http.MethodPost, page+"face/"+path, form.Encode())
	resp.Body.Close()
	return resp.StatusCode
}

// open does what the page does, until a sale may begin.
func open(t *testing.T, page string) pageState {
	t.Helper()
	require.Equal(t, http.StatusNoContent, press(t, page, "open", nil))
	return watch(t, page, func(s pageState) bool { return s.Service.Up && len(s.Shops) == pageShops })
}

func pids(s pageState) []int {
	all := []int{s.Service.PID}
	for _, shop := range s.Shops {
		all = append(all, shop.PID)
	}
	return all
}

// allGone reports whether no process is left.
func allGone(all []int) bool {
	for _, pid := range all {
		if syscall.Kill(pid, 0) == nil {
			return false
		}
	}
	return true
}

func needRedis(t *testing.T) {
	t.Helper()
	_, err := testproc.Find("redis-server")
	testproc.Need(t, err)
}

// The server ends in the middle of a sale, as by a signal: no process is left, and no file.
func TestThePageEndsWithItsProcesses(t *testing.T) {
	needRedis(t)
	t.Setenv("TMPDIR", t.TempDir())
	var children []int
	t.Run("serve", func(t *testing.T) {
		page := servePage(t)
		looked := watch(t, page, func(pageState) bool { return true })
		assert.Empty(t, looked.Shops, "a GET starts nothing: another site's page has the browser send one")
		children = pids(open(t, page))
		require.False(t, allGone(children))
		sale := url.Values{"stock": {"1000"}, "buyers": {"600"}, "seconds": {"30"}}
		require.Equal(t, http.StatusNoContent, press(t, page, "sale", sale))
		watch(t, page, func(s pageState) bool { return s.Sale != nil && s.Sale.Rounds[2].Sold > 0 })
		assert.Equal(t, http.StatusConflict, press(t, page, "sale", sale), "one sale at a time")
		for field, wrong := range map[string]string{"stock": "100001", "buyers": "0", "seconds": ""} {
			assert.Equal(t, http.StatusBadRequest, press(t, page, "sale", url.Values{"stock": {"1"}, "buyers": {"3"}, "seconds": {"1"}, field: {wrong}}), field)
		}
		assert.Equal(t, http.StatusConflict, press(t, page, "shops/4/kill", nil))
		assert.Equal(t, http.StatusConflict, press(t, page, "shops/1/restart", nil))
		assert.Equal(t, http.StatusConflict, press(t, page, "service/restart", nil))
	})
	assert.True(t, allGone(children))
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "flashsale-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// The server is killed: its children end with it.
func TestNothingOutlivesAServerThatIsKilled(t *testing.T) {
	testscope.Long(t, "kills processes")
	needRedis(t)
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the lock service stays")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir) // which the server cannot tidy up
	server := launchServer(t, "")
	children := pids(open(t, "http://"+server.Addr+"/"))
	server.Kill()
	assert.Eventually(t, func() bool { return allGone(children) }, patience, 10*time.Millisecond)
}

// Without a Redis the page says what to do, and works with the -backend of the user, which is not killed.
func TestThePageWithoutARedisOfItsOwn(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	locks := "sqlite://" + filepath.Join(t.TempDir(), "locks.db")
	page := servePage(t, "-backend", locks)
	open(t, page)
	assert.Equal(t, http.StatusConflict, press(t, page, "service/kill", nil))
	require.Equal(t, http.StatusNoContent, press(t, page, "sale", url.Values{"stock": {"5"}, "buyers": {"6"}, "seconds": {"1"}}))
	ended := watch(t, page, func(s pageState) bool { return s.Sale != nil && !s.Sale.Running })
	assert.Zero(t, ended.Sale.Rounds[2].Oversold)
	assert.Positive(t, ended.Sale.Rounds[2].Sold)

	t.Setenv("PATH", "/nowhere")
	alone := servePage(t)
	require.Equal(t, http.StatusNoContent, press(t, alone, "open", nil))
	state := watch(t, alone, func(s pageState) bool { return s.Problem != "" })
	assert.Contains(t, state.Problem, "no redis-server in PATH")
	assert.Equal(t, http.StatusConflict, press(t, alone, "sale", url.Values{"stock": {"5"}, "buyers": {"6"}, "seconds": {"1"}}))
}

// The chart shows an outage from its first moment to its last, whoever ended the lock service, and however often it is noted.
func TestAnOutageIsOneAreaOfTheChart(t *testing.T) {
	sc := &scene{pageState: pageState{Sale: &stageSale{Running: true, began: time.Now().Add(-time.Second)}}}
	up := new(sale.Process)
	sc.serviceIs(up)
	assert.Empty(t, sc.Sale.Outages)
	for range 2 {
		sc.serviceIs(nil)
	}
	assert.Len(t, sc.Sale.Outages, 1)
	assert.Zero(t, sc.Sale.Outages[0][1], "it goes on")
	sc.serviceIs(up)
	assert.GreaterOrEqual(t, sc.Sale.Outages[0][1], sc.Sale.Outages[0][0])
	assert.Len(t, sc.Sale.Outages, 1)
}
