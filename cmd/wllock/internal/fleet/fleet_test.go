package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/cmd/wllock/internal/live"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/wllocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a page over a backend in memory.
type served struct {
	*memlock.Backend
	*httptest.Server
	t *testing.T
}

func serve(t *testing.T) served {
	t.Helper()
	b := memlock.New()
	runs := func(ctx context.Context) ([]distributed.Runs, error) { return b.Runs(ctx, "test:") }
	watch := live.NewWatch(b, live.Options{Prefix: "test:", Shown: strings.Clone, Interval: 10 * time.Millisecond}, runs)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { watch.Run(ctx) })
	s := served{b, httptest.NewServer(Handler(watch, "test:")), t}
	t.Cleanup(func() {
		s.Server.Close()
		cancel()
		running.Wait()
	})
	return s
}

// locker is a process, whose locks no slow machine loses.
func (s served) locker() *wllock.Locker {
	return testlocker.On(s.t, s.Backend, wllock.WithLeaseTTL(time.Minute))
}

// answer sends a request, and returns the status and the body.
func (s served) answer(method, target, host string) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+target, http.NoBody)
	require.NoError(s.t, err)
	r.Host = host
	answer, err := s.Client().Do(r)
	require.NoError(s.t, err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	return answer, string(body)
}

// get returns a page.
func (s served) get(target string) string {
	s.t.Helper()
	answer, body := s.answer(http.MethodGet, target, "")
	require.Equal(s.t, http.StatusOK, answer.StatusCode, body)
	return body
}

func (s served) json(query string) (d document) {
	s.t.Helper()
	require.NoError(s.t, json.Unmarshal([]byte(s.get("/?format=json&"+query)), &d))
	return d
}

// eventually waits until the page is so: what is read is as old as an interval.
func (s served) eventually(ok func(document) bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return ok(s.json("")) }, 10*time.Second, 20*time.Millisecond)
}

// crowd has an instance wait for the lock on order 1, until the test ends.
func crowd(t *testing.T, l *wllock.Locker) {
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	waiting.Go(func() { _ = l.Do(ctx, "order", "1", testlocker.Nothing) })
	t.Cleanup(func() {
		cancel()
		waiting.Wait()
	})
}

// Who holds, who waits, and how did jobs end, over all processes.
func TestThePageOfAFleet(t *testing.T) {
	s := serve(t)
	a, b := s.locker(), s.locker()
	wllocktest.Hold(t, a, "order", "1")
	wllocktest.Hold(t, b, "cart", "2")
	crowd(t, b)
	for key, result := range map[string]string{"nightly": "exit 3", "hourly": distributed.RunOK} {
		run := distributed.Run{Key: "test:cron:" + key, Instance: "web-1-abcdefghij", Began: time.Now(), Took: time.Minute, Result: result, Fence: 1}
		require.NoError(t, s.Record(t.Context(), run))
	}
	s.eventually(func(d document) bool { return d.Waiting == 1 && d.Held == 2 })
	d := s.json("")
	require.True(t, d.Complete)
	require.True(t, d.Backend.Available)
	require.Equal(t, "test:order:1", d.Locks[0].Key)
	require.Equal(t, a.Instance(), d.Locks[0].Holders[0].Instance)
	require.Equal(t, b.Instance(), d.Locks[0].Waiters[0].Instance)
	require.Equal(t, "test:cart:2", d.Locks[1].Key)
	require.Equal(t, []string{"test:cron:nightly", "exit 3"}, []string{d.Jobs[0].Key, d.Jobs[0].Last.Result})
	require.Equal(t, d.Jobs[1].Last, *d.Jobs[1].Success)

	page := s.get("/?format=html&refresh=5&filter=order%7Ccron")
	require.Contains(t, page, `<meta http-equiv="refresh" content="5">`)
	require.Regexp(t, `(?s)test:order:1</code>.*queued">1<.*`+b.Instance()+` <b>[0-9.]+m?s</b>.*<td data-is="holder">`+a.Instance()+`</td>`, page)
	require.Regexp(t, `(?s)test:cron:nightly</code>.*degraded">exit 3<.*test:cron:hourly</code>.*held">ok<`, page)
	require.NotContains(t, page, "cart")
	require.Contains(t, page, `<input name="filter" value="order|cron"`)
	require.Regexp(t, `longest held</dt><dd><b>[0-9.]+m?s</b> <code>test:order:1</code>, `+a.Instance(), page)
	require.Contains(t, page, `href="?filter=order%7Ccron&amp;format=json"`)

	text := s.get("/?prefix=test:order")
	require.Regexp(t, `^1 waiting, 1 held\ntest:\*, \S+ \S+ UTC\nbackend available for \S+, last answer \S+ ago\n`, text)
	require.Regexp(t, `(?m)^test:order:1 +exclusive .* 1 +`+a.Instance(), text)
	require.NotContains(t, text, "cart")
	require.NotContains(t, text, "cron")
}

// In an outage the last list stays.
func TestAnOutageIsOnThePage(t *testing.T) {
	s := serve(t)
	wllocktest.Hold(t, s.locker(), "order", "1")
	s.eventually(func(d document) bool { return d.Held == 1 })
	s.Partition(true)
	defer s.Partition(false)
	s.eventually(func(d document) bool { return !d.Backend.Available })
	d := s.json("")
	require.Contains(t, d.Backend.Error, "partitioned")
	require.Less(t, d.Backend.Answered, d.Time)
	require.Equal(t, "test:order:1", d.Locks[0].Key)
	page := s.get("/?format=html")
	require.Regexp(t, `<title>[^<]*BACKEND NOT AVAILABLE</title>`, page)
	require.Regexp(t, `(?s)Backend not available for .*partitioned.*Locks <small>as they were \S+ ago</small>.*test:order:1`, page)
	require.Regexp(t, `(?s)BACKEND NOT AVAILABLE for \S+, last answer \S+ ago: ".*partitioned.*test:order:1 `, s.get("/"))
}

// What was known an hour ago is shown as it was then: the lock may be free by now.
func TestAgesEndWithTheLastAnswer(t *testing.T) {
	now := time.Now()
	i := distributed.Inspection{
		Key: "test:order:1", Since: now.Add(-3 * time.Hour), Holders: []distributed.Holder{{Instance: "web"}},
		Waiters: []distributed.Waiter{{Instance: "db", Since: now.Add(-90 * time.Minute)}},
	}
	frame := live.Frame{Locks: []*live.Lock{{Inspection: i, Name: i.Key}}, Err: errors.New("away"), Since: now, Answered: now.Add(-time.Hour)}
	var text, html strings.Builder
	p := page{live.View{Frame: frame}, query{filter: regexp.MustCompile("")}, "test:", now}
	p.Text(&text)
	p.HTML(&html, 0)
	require.Regexp(t, `test:order:1 +exclusive +2h00m `, text.String())
	require.Contains(t, html.String(), "db <b>30m00s</b>")
}

// Only who may look does, and what is wrong with a question is said.
func TestWhatThePageRefuses(t *testing.T) {
	s := serve(t)
	for _, test := range []struct {
		method, target, host string
		status               int
		says                 string
	}{
		{http.MethodPost, "/", "", http.StatusMethodNotAllowed, "read-only"},
		{http.MethodGet, "/", "evil.example", http.StatusForbidden, "localhost"},
		{http.MethodGet, "/favicon.ico", "", http.StatusNotFound, "not found"},
		{http.MethodGet, "/?filter=(", "", http.StatusBadRequest, "missing closing )"},
		{http.MethodGet, "/?prefix=other:", "", http.StatusBadRequest, `"test:"`},
		{http.MethodGet, "/", "localhost", http.StatusOK, "0 held"},
		{http.MethodHead, "/", "", http.StatusOK, ""},
	} {
		answer, body := s.answer(test.method, test.target, test.host)
		require.Equal(t, test.status, answer.StatusCode, test)
		require.Contains(t, body, test.says)
		require.NotContains(t, answer.Header.Get("Content-Type"), "html")
	}
	answer, _ := s.answer(http.MethodGet, "/?format=html", "")
	require.Regexp(t, `^default-src 'none'; style-src 'sha256-[^']+'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'$`,
		answer.Header.Get("Content-Security-Policy"))
	require.Equal(t, "no-store", answer.Header.Get("Cache-Control"))
}

// Keys and what is asked come from anywhere: neither ends its element, changes the direction of the text, nor moves a cursor.
func TestHostileTexts(t *testing.T) {
	s := serve(t)
	l := s.locker()
	hostile := []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</style><script>x</script>`, "\u202egnp.exe", `{{.PID}}`}
	for _, key := range hostile {
		wllocktest.Hold(t, l, "order", key)
	}
	s.eventually(func(d document) bool { return d.Held == len(hostile) })
	filter := url.QueryEscape(`(?:)|"><script>`)
	page := s.get("/?format=html&filter=" + filter)
	require.Equal(t, len(hostile), strings.Count(page, `<td data-is="holder">`))
	require.NotRegexp(t, `<script|<img`, page)
	require.Contains(t, page, "&lt;script&gt;alert(1)&lt;/script&gt;")
	_, refusal := s.answer(http.MethodGet, "/?filter="+url.QueryEscape("(\x1b"), "")
	for _, text := range []string{page, s.get("/"), s.get("/?format=json"), refusal} {
		require.NotContains(t, text, "\u202e")
		require.NotContains(t, text, "\x1b")
	}
}

// A page has so many lines at most, and says how many more there are.
func TestThePageIsBounded(t *testing.T) {
	s := serve(t)
	l := s.locker()
	for i := range limit + 7 {
		wllocktest.Hold(t, l, "order", strconv.Itoa(i))
	}
	s.eventually(func(d document) bool { return d.Held == limit+7 })
	d := s.json("")
	require.Len(t, d.Locks, limit)
	require.Equal(t, 7, d.MoreLocks)
	require.Contains(t, s.get("/?format=html"), "and 7 more")
	require.Len(t, regexp.MustCompile(`(?m)^test:`).FindAllString(s.get("/"), -1), limit+1)
	require.Contains(t, s.get("/"), "\nand 7 more\n")
}
