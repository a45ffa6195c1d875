package stage

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/example/flashsale/internal/sale"
	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

func openTestStore(t *testing.T, s sale.Settings, backend *memlock.Backend, opts ...wllock.Option) *store {
	t.Helper()
	s.TTL = 5 * time.Second
	if s.DB == "" {
		s.DB = "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	}
	store, err := openStore(t.Context(), s, backend, io.Discard, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = backend.Close() })
	return store
}

// busy locks the database, so that orders stay inside, until the returned function is called.
func (s *store) busy(t *testing.T) (quiet func()) {
	t.Helper()
	file, _ := sqlshop.File(s.set.DB)
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate")
	require.NoError(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	return func() { _, _ = tx.Rollback(), db.Close() }
}

// series are the labels that a metric was seen with, each with one of its values.
type series map[string]map[string]string

var (
	sample = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)
	label  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"`)
)

func parseMetrics(text string) series {
	all := series{}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		if all[m[1]] == nil {
			all[m[1]] = map[string]string{}
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			all[m[1]][l[1]] += l[2] + "\n"
		}
	}
	return all
}

// query is what a PromQL expression selects.
type query struct {
	metrics  []string
	labels   []string    // by which it groups or selects
	selected [][2]string // label="value"
}

var (
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	selector = regexp.MustCompile(`\{([^}]*)\}`)
	window   = regexp.MustCompile(`\[[^\]]*\]`)
	word     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?`)
	names    = regexp.MustCompile(`[a-zA-Z_][a-zA-Z0-9_]*`)
)

var operators = []string{"and", "or", "unless", "bool", "offset"}

func parseQuery(expr string) (q query) {
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		for _, l := range label.FindAllStringSubmatch(s[1], -1) {
			q.labels = append(q.labels, l[1])
			if !strings.HasPrefix(l[2], "$") {
				q.selected = append(q.selected, [2]string{l[1], l[2]})
			}
		}
	}
	expr = window.ReplaceAllString(selector.ReplaceAllString(expr, ""), "")
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		q.labels = append(q.labels, names.FindAllString(g[1], -1)...)
	}
	for _, w := range word.FindAllString(grouping.ReplaceAllString(expr, ""), -1) {
		w = strings.TrimSpace(w)
		if !strings.HasSuffix(w, "(") && !slices.Contains(operators, w) {
			q.metrics = append(q.metrics, w)
		}
	}
	return q
}

func TestParseQuery(t *testing.T) {
	assert.Equal(t, query{
		metrics: []string{"a_bucket", "b_total"}, labels: []string{"x", "y", "le", "tier"}, selected: [][2]string{{"y", "v"}},
	}, parseQuery(`histogram_quantile(0.99, sum by (le, tier) (rate(a_bucket{x=~"$x", y="v"}[$__rate_interval]))) > 0 and sum(b_total)`))
	assert.Equal(t, series{"m": {"a": "1\n2\n", "b": "x{y}\n"}, "n": {}}, parseMetrics("# HELP m n\nm{a=\"1\"} 4\nm{a=\"2\",b=\"x{y}\"} 1e-05\nn 3\n"))
}

// dashboard is the checked part of wllock.json.
type dashboard struct {
	Panels []struct {
		Title   string
		Type    string
		Targets []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
}

// The server exports every metric and label of the dashboard, once everything has happened to it.
func TestDashboardFitsTheMetrics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../deploy/grafana/wllock.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	told := parseMetrics(metricsAfterLoad(t))
	check := func(title, expr, legend string) {
		q := parseQuery(expr)
		require.NotEmpty(t, q.metrics, expr)
		for _, l := range regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`).FindAllStringSubmatch(legend, -1) {
			q.labels = append(q.labels, l[1])
		}
		for _, m := range q.metrics {
			if !assert.Contains(t, told, m, "%s: %s", title, expr) {
				continue
			}
			for _, l := range q.labels {
				assert.Contains(t, told[m], l, "%s: %s", title, expr)
			}
			for _, s := range q.selected {
				assert.Contains(t, told[m][s[0]], s[1]+"\n", "%s: %s", title, expr)
			}
		}
	}
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			check(p.Title, target.Expr, target.LegendFormat)
		}
	}
	alerts, err := os.ReadFile("../../../../deploy/alerts.yaml")
	require.NoError(t, err)
	rules := regexp.MustCompile(`(?m)^ +expr: (.+)$`).FindAllSubmatch(alerts, -1)
	require.Len(t, rules, 8)
	tests, err := os.ReadFile("../../../../deploy/alerts_test.yaml") // which promtool runs: make alerts
	require.NoError(t, err)
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllSubmatch(alerts, -1) {
		require.Regexp(t, `alertname: `+string(alert[1])+`\n +exp_alerts:`, string(tests))
	}
	for _, rule := range rules {
		check("alerts.yaml", string(rule[1]), "")
	}
	for m := range told {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m, "_bucket"), "_sum"), "_count")
		if strings.HasPrefix(m, "wllock_") {
			assert.Contains(t, string(text), base, "no panel shows it")
		}
	}
	for _, v := range d.Templating.List {
		if m := regexp.MustCompile(`^label_values\((.+),\s*(\w+)\)$`).FindStringSubmatch(v.Query); m != nil {
			check(v.Name, m[1], "{{"+m[2]+"}}")
		}
	}
}

func nothing(context.Context) error { return nil }

// metricsAfterLoad has orders, waiters, refusals, a wait in vain, a renewal, a lost lock, and callers without the backend.
func metricsAfterLoad(t *testing.T) string {
	backend := memlock.New()
	const ttl = time.Second
	store := openTestStore(t, sale.Settings{Stock: 100, Threshold: 3, Wait: time.Minute}, backend,
		wllock.WithLeaseTTL(ttl), wllock.WithOutage(wllock.LocalOnly))
	server := httptest.NewServer(store.handler())
	defer func() {
		server.Close()
		assert.NoError(t, store.close(t.Context()))
	}()
	quiet := store.busy(t)
	var buyers sync.WaitGroup
	for range 10 {
		buyers.Go(func() { post(t, server.Client(), server.URL) })
	}
	stats := store.locker.Stats
	require.Eventually(t, func() bool { return stats().Total.Held == 1 && stats().Total.Shed == 6 }, patience, time.Millisecond)
	time.Sleep(ttl / 4) // a renewal comes after a sixth
	backend.Expire("flashsale:product:" + servedProduct)
	require.Eventually(t, func() bool { return stats().Total.Lost == 1 }, patience, time.Millisecond)
	lock, err := store.locker.Acquire(t.Context(), "product", "other")
	require.NoError(t, err)
	require.ErrorIs(t, store.locker.Do(t.Context(), "product", "other", nothing, wllock.WithWait(time.Millisecond)), wllock.ErrWaitTimeout)
	require.NoError(t, lock.Release(t.Context()))
	quiet()
	buyers.Wait()
	backend.Partition(true)
	require.ErrorIs(t, store.locker.Do(t.Context(), "product", "other", nothing, wllock.NoWait()), wllock.ErrUnavailable)
	assert.Equal(t, http.StatusServiceUnavailable, post(t, server.Client(), server.URL), "no fence, no order")

	resp := send(t, http.MethodGet, server.URL+"/metrics", "")
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}
