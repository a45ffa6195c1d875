package debug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/debug"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/wllocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t testing.TB, target, accept string, lockers ...*wllock.Locker) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	r.Header.Set("Accept", accept)
	debug.Handler(lockers...).ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
	return w
}

func getText(t testing.TB, l *wllock.Locker) string {
	t.Helper()
	return get(t, "/", "", l).Body.String()
}

// getHTML returns a page, which must be well formed.
func getHTML(t *testing.T, target string, lockers ...*wllock.Locker) string {
	t.Helper()
	page := get(t, target, "text/html", lockers...).Body.String()
	wellFormed(t, page)
	return page
}

// document is the page's JSON as a Go program reads it.
type document struct {
	Time    time.Time
	PID     int
	Uptime  float64 `json:"uptime_seconds"`
	Lockers []locker
}

type locker struct {
	System, Instance string
	Backend          struct {
		Available bool
		Since     time.Time
		Answered  time.Time
		Error     string
	}
	Total     wllock.NameStats
	Names     map[string]wllock.NameStats
	MoreNames bool `json:"more_names"`
	LastLost  *struct {
		At         time.Time
		Key, Error string
	} `json:"last_lost"`
	Slowest *wllock.LockInfo
	Jobs    []struct {
		Key, Result  string
		Began, Ended time.Time
		Until        time.Time `json:"taken_until"`
	}
	Locks     []wllock.LockInfo
	MoreLocks bool `json:"more_locks"`
}

func getJSON(t testing.TB, l *wllock.Locker) locker {
	t.Helper()
	w := get(t, "/?format=json", "", l)
	var d document
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &d))
	require.WithinDuration(t, time.Now(), d.Time, time.Minute)
	require.Equal(t, os.Getpid(), d.PID)
	require.Positive(t, d.Uptime)
	require.Len(t, d.Lockers, 1)
	return d.Lockers[0]
}

// crowd makes n callers wait for a key, of which counted wait in the local queue, until the returned function is called.
func crowd(t testing.TB, l *wllock.Locker, name, key string, n, counted int) (leave func()) {
	t.Helper()
	before := l.Stats().Total.Waiting
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			assert.ErrorIs(t, l.Do(ctx, name, key, testlocker.Nothing), context.Canceled)
		})
	}
	require.Eventually(t, func() bool { return l.Stats().Total.Waiting == before+int64(counted) }, 5*time.Second, time.Millisecond)
	return func() {
		cancel()
		wg.Wait()
	}
}

func TestWithoutLocks(t *testing.T) {
	l := wllocktest.New(t)
	require.Equal(t, []wllock.LockInfo{}, getJSON(t, l).Locks)
	require.Contains(t, getText(t, l), "0 waiting, 0 held")
}

func TestBackendIsShown(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t)
	require.True(t, getJSON(t, l).Backend.Available)
	require.Contains(t, getText(t, l), "backend available for ")
	require.Contains(t, getHTML(t, "/", l), "Backend available for ")
	faults.Partition()
	require.Eventually(t, func() bool {
		require.Error(t, l.Do(t.Context(), "product", "1", testlocker.Nothing))
		return !getJSON(t, l).Backend.Available
	}, 5*time.Second, time.Millisecond)
	d := getJSON(t, l)
	require.Contains(t, d.Backend.Error, "lock backend unavailable")
	require.WithinRange(t, d.Backend.Since, time.Now().Add(-time.Minute), time.Now())
	require.Regexp(t, `(?m)^BACKEND NOT AVAILABLE for .+: ".*lock backend unavailable`, getText(t, l))
	page := getHTML(t, "/", l)
	require.Contains(t, page, "Backend not available for ")
	require.Contains(t, page, "lock backend unavailable") // the error of a backend may repeat what it was sent
	require.Regexp(t, `<title>[^<]*BACKEND NOT AVAILABLE</title>`, page)
	require.Regexp(t, `<div class="warn"><dt>unavailable</dt><dd>[1-9]`, page)
}

func TestTheLastLossIsShown(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t)
	require.Nil(t, getJSON(t, l).LastLost)
	require.ErrorIs(t, l.Do(t.Context(), "product", "<1>", func(ctx context.Context) error {
		faults.Partition()
		<-ctx.Done()
		return nil
	}), wllock.ErrLeaseLost)
	last := getJSON(t, l).LastLost
	require.WithinDuration(t, time.Now(), last.At, time.Minute)
	require.Equal(t, wllocktest.System+":product:<1>", last.Key)
	require.Contains(t, last.Error, "partitioned")
	require.Regexp(t, `(?m)^last lost: ".*:product:<1>", .+ ago: "lease lost: its last renewal, .*partitioned`, getText(t, l))
	page := getHTML(t, "/", l)
	require.Regexp(t, `<dt>last lost</dt><dd><b>.* ago</b> <code>&#34;.*:product:&lt;1&gt;&#34;</code>: lease lost: .*partitioned`, page)
}

func TestJobsAreShown(t *testing.T) {
	l := wllocktest.New(t)
	require.NotContains(t, getText(t, l), "JOB")
	require.Empty(t, getJSON(t, l).Jobs)
	fail := func(context.Context) error { return errors.New("secret") }
	require.Error(t, l.Do(t.Context(), "cron", "<1>", fail, wllock.WithHoldAtLeast(time.Hour), wllock.ReleaseOnError()))
	for range 60 { // of one job only the last run is kept
		require.Error(t, l.Lead(t.Context(), "cron", "2", func(context.Context) error { return errors.New("secret") }))
	}
	require.NoError(t, l.Do(t.Context(), "cron", "3", testlocker.Nothing, wllock.WithHoldAtLeast(time.Hour)))
	require.Regexp(t, `(?m)^JOB +LAST RUN +TOOK +RESULT +NEXT
"test:cron:3" .* ago .* ok +in (59m59|1h0m0)s
"test:cron:2" .* error +any time
"test:cron:<1>" .* error +any time$`, getText(t, l))
	require.Regexp(t, `(?m)^"test:cron:3" .* staying$`, getText(t, l))
	require.Nil(t, getJSON(t, l).Slowest, "no caller holds it")
	jobs := getJSON(t, l).Jobs
	require.Len(t, jobs, 3)
	require.Equal(t, wllocktest.System+":cron:<1>", jobs[2].Key)
	require.Equal(t, "error", jobs[2].Result)
	require.WithinDuration(t, time.Now(), jobs[2].Ended, time.Minute)
	require.WithinDuration(t, jobs[0].Began.Add(time.Hour), jobs[0].Until, time.Second)
	require.Regexp(t, `(?s)<code>&#34;.*:cron:&lt;1&gt;&#34;</code>.*<span class="state degraded">error</span>`, getHTML(t, "/", l))
}

func TestWhoHoldsAndWaits(t *testing.T) {
	l := wllocktest.New(t, wllock.WithThreshold(4))
	lock, err := l.Acquire(t.Context(), "product", "1")
	require.NoError(t, err)
	defer func() { _ = lock.Release(context.WithoutCancel(t.Context())) }()
	wllocktest.Hold(t, l, "product", "2")
	defer crowd(t, l, "product", "1", 3, 3)()

	d := getJSON(t, l)
	require.EqualValues(t, 3, d.Total.Waiting)
	require.EqualValues(t, 2, d.Total.Held)
	require.EqualValues(t, 3, d.Names["product"].Waiting)
	require.Equal(t, 4, d.Names["product"].Threshold)
	require.Equal(t, "test:product:1", d.Slowest.Key)
	require.Equal(t, l.Instance(), d.Instance)
	require.Len(t, d.Locks, 2)
	first := d.Locks[0]
	assert.Equal(t, wllock.LockInfo{Key: "test:product:1", Mode: "exclusive", Waiting: 3, Holders: 1, Fence: lock.Fence(), Turns: 1,
		Holder: l.Instance(), HeldFor: first.HeldFor, Until: first.Until}, first)
	assert.Positive(t, first.HeldFor)
	assert.Greater(t, first.Until, time.Now())
	assert.Equal(t, 0, d.Locks[1].Waiting)

	text := getText(t, l)
	assert.Regexp(t, `(?m)^KEY +MODE +WAITING +HOLDERS +HOLDER +BATCH +HELD +FENCE +TURNS +LEASE +STATE$`, text)
	assert.Regexp(t, `(?m)^"test:product:1" +exclusive +3 +1 +here +0 +[0-9.]+[mµ]?s +`+strconv.FormatUint(first.Fence, 10)+` +1 +[0-9.]+s +held$`, text)

	page := getHTML(t, "/", l)
	assert.Contains(t, page, `<span class="state held">held</span>`)
	assert.Regexp(t, `3 <small>of 4</small> <meter [^>]*max="4" low="2" high="3" optimum="0" value="3">`, page)
	assert.Regexp(t, `slowest holder</dt><dd><b>[0-9.µm]+s</b> <code>&#34;test:product:1&#34;</code>, here`, page)
	assert.Contains(t, page, l.Instance())
	require.NoError(t, l.SetThreshold("product", wllock.Unlimited))
	assert.Contains(t, getHTML(t, "/", l), `3 <small>of any</small></span>`, "no bar without a threshold")
}

func TestOtherStates(t *testing.T) {
	l, faults := wllocktest.NewWithFaults(t, wllock.WithLinger(time.Minute))
	wllocktest.Hold(t, faults.Process(), "product", "1")
	waiting := crowd(t, l, "product", "1", 1, 0) // its head waits in the backend, and is not counted here
	defer waiting()
	require.NoError(t, l.Do(t.Context(), "product", "2", testlocker.Nothing))
	require.Eventually(t, func() bool { return len(getJSON(t, l).Locks) == 2 && getJSON(t, l).Locks[0].AtBackend },
		5*time.Second, time.Millisecond)
	text := getText(t, l)
	assert.Regexp(t, `(?m)^"test:product:1" .* -  +queued$`, text)
	assert.Regexp(t, `(?m)^"test:product:2" .* lingering$`, text)
}

// A lock held without a lease is shown as degraded.
func TestDegraded(t *testing.T) {
	l, b := testlocker.New(t, wllock.WithLeaseTTL(50*time.Millisecond), wllock.WithOutage(wllock.LocalOnly))
	b.Partition(true)
	require.NoError(t, l.Do(t.Context(), "product", "1", func(context.Context) error {
		assert.True(t, getJSON(t, l).Locks[0].Degraded)
		assert.Regexp(t, `(?m)^"test:product:1" .* - +1 +- +degraded$`, getText(t, l))
		return nil
	}))
	b.Partition(false)
}

func TestBatchIsShown(t *testing.T) {
	l := wllocktest.New(t)
	order := wllock.WrapBatch(l, "product", func(int) string { return "1" }, func(context.Context, []*wllock.Item[int, int]) error {
		assert.Equal(t, 1, getJSON(t, l).Locks[0].Batch)
		assert.Regexp(t, `(?m)^"test:product:1" +exclusive +0 +1 +here +1 +`, getText(t, l))
		return nil
	})
	_, err := order(t.Context(), 1)
	require.NoError(t, err)
}

func TestFormats(t *testing.T) {
	l := wllocktest.New(t)
	for _, test := range []struct{ target, accept, want string }{
		{"/", "", "text/plain; charset=utf-8"},
		{"/", "*/*", "text/plain; charset=utf-8"}, // curl
		{"/", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8", "text/html; charset=utf-8"}, // a browser
		{"/", "application/json, text/plain, */*", "application/json"},                                                  // axios
		{"/", "text/html;q=0.5, application/json", "application/json"},
		{"/", "text/html;q=0, text/plain;q=0.1", "text/plain; charset=utf-8"},
		{"/", "image/png, text/html;q=0.1, ;;", "text/html; charset=utf-8"},
		{"/?format=html", "application/json", "text/html; charset=utf-8"},
		{"/", "application/json", "application/json"},
		{"/?format=json", "text/html", "application/json"},
		{"/?format=text", "application/json", "text/plain; charset=utf-8"},
	} {
		require.Equal(t, test.want, get(t, test.target, test.accept, l).Header().Get("Content-Type"), test)
	}
}

func TestOnlyReads(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		w := httptest.NewRecorder()
		debug.Handler(wllocktest.New(t)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/", nil))
		require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	}
}

func TestBounded(t *testing.T) {
	l := wllocktest.New(t)
	for i := range 101 {
		if i == 100 {
			require.NotContains(t, getText(t, l), "more")
			require.False(t, getJSON(t, l).MoreLocks)
		}
		wllocktest.Hold(t, l, "product", strconv.Itoa(i))
	}
	defer crowd(t, l, "product", "77", 1, 1)()
	d := getJSON(t, l)
	require.True(t, d.MoreLocks)
	require.Len(t, d.Locks, 100)
	require.Equal(t, "test:product:77", d.Locks[0].Key, "the key with a waiter comes first")
	text := getText(t, l)
	require.Len(t, regexp.MustCompile(`(?m)^"`).FindAllString(text, -1), 100)
	require.Contains(t, text, "more keys exist")
}

// Keys come from clients: they must neither break the table nor fill the screen.
func TestKeysAreQuotedAndCut(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", `<script>"\`)
	wllocktest.Hold(t, l, "product", "long "+strings.Repeat("ü", 200))
	text := getText(t, l)
	require.Contains(t, text, `"test:product:<script>\"\\" `)
	require.Regexp(t, `"test:product:long ü{10,25}"\.\.\. `, text)
}

func ExampleHandler() {
	locker, err := wllock.New("order", memlock.New())
	if err != nil {
		panic(err)
	}
	defer func() { _ = locker.Close(context.Background()) }()
	admin := http.NewServeMux() // on a port that only operators reach
	admin.Handle("GET /debug/wllock", debug.Handler(locker))

	server := httptest.NewServer(admin)
	defer server.Close()
	resp, err := http.Get(server.URL + "/debug/wllock")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	page, _ := io.ReadAll(resp.Body)
	fmt.Println(strings.Split(string(page), "\n")[0])
	// Output: 0 waiting, 0 held
}

// On a loopback address a browser may be led to the page by another site's name.
func TestAnotherSitesNameIsRefusedOnLoopback(t *testing.T) {
	l, _ := testlocker.New(t)
	server := httptest.NewServer(debug.Handler(l))
	defer server.Close()
	for host, code := range map[string]int{
		"": 200, "localhost": 200, "LOCALHOST.:80": 200, "127.0.0.1:1": 200, "[::1]:80": 200, "192.0.2.7": 200,
		"evil.example": 403, "localhost.evil.example:80": 403, "127.0.0.1.evil.example": 403,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		require.NoError(t, err)
		r.Host = host
		answer, err := server.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, code, answer.StatusCode, host)
	}
	elsewhere := httptest.NewRecorder() // a server on another address may have any name
	debug.Handler(l).ServeHTTP(elsewhere, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://admin.example/", http.NoBody))
	require.Equal(t, http.StatusOK, elsewhere.Code)
}

// The page is read in terminals as well.
func TestJSONIsPrintable(t *testing.T) {
	l, _ := testlocker.New(t)
	defer testlocker.Hold(t, l, "n", "a\u202eb")()
	require.Equal(t, "test:n:a\u202eb", getJSON(t, l).Locks[0].Key)
	require.Contains(t, get(t, "/?format=json", "", l).Body.String(), `test:n:a\u202eb`)
}
