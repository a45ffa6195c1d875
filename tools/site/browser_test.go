package site

import (
	"context"
	_ "embed"
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:embed testdata/harness.html
var harness string

// seen is what the harness saw of a page at a width and in a theme.
type seen struct {
	Page    string   `json:"page"`
	Width   int      `json:"width"`
	Theme   string   `json:"theme"`
	Content int      `json:"content"` // how wide it is
	Listed  bool     `json:"listed"`  // the page has contents
	Second  string   `json:"second"`  // heading of it, "" if the contents are folded
	Marked  string   `json:"marked"`  // in the contents, with the second heading at the top
	Kept    []int    `json:"kept"`    // where contents and navigation are, with the page at its end
	Covered bool     `json:"covered"` // a heading that is linked to, by the header
	Aside   []string `json:"aside"`   // tables of few columns that are wider than the page
	Pressed []string `json:"pressed"` // keys, and what they did
	Faint   []string `json:"faint"`   // texts with too little contrast
	Broken  []string `json:"broken"`  // pictures without a size
	Errors  []string `json:"errors"`
	Rows    int      `json:"rows"`  // of the calculator
	Found   []string `json:"found"` // by the search
}

// TestPagesInABrowser lays out every page on a telephone and on a desk, light and dark: nothing is wider than the window, text
// can be told from its background, a heading that is linked to lies below the header, the lists of pages and of headings stay, no
// script fails, the calculator calculates, and the search finds and can be used without a mouse.
func TestPagesInABrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil && os.Getenv("WLLOCK_REQUIRE_SERVERS") == "" {
		t.Skip("chromium is not in PATH")
	}
	require.NoError(t, err)
	all := look(t, browser)
	require.Greater(t, len(all), 40)
	for _, s := range all {
		at := []any{"%s at %d, %s", s.Page, s.Width, s.Theme}
		assert.LessOrEqual(t, s.Content, s.Width, at...)
		if s.Width == 390 || !s.Listed {
			assert.Empty(t, s.Second, at...)
		} else {
			assert.NotEmpty(t, s.Second, at...)
			assert.Equal(t, s.Second, s.Marked, at...)
			for _, top := range s.Kept {
				assert.InDelta(t, 60, top, 10, at...) // below the header
			}
		}
		assert.False(t, s.Covered, at...)
		assert.Empty(t, s.Aside, at...)
		assert.Empty(t, s.Errors, at...)
		assert.Empty(t, s.Broken, at...)
		assert.Empty(t, s.Faint, at...)
		if s.Page == "docs/calculator.html" {
			assert.Equal(t, 7, s.Rows, at...)
		}
		if s.Page == "index.html" {
			assert.NotEmpty(t, s.Found, at...)
			assert.Equal(t, []string{"/: ui-search", "ArrowDown: 0", "ArrowDown: 1", "ArrowUp: 0", "ArrowUp: ui-search", "Enter: ui-search",
				"to docs/redis.html#rights", "Escape: -1 without outline", "hidden"}, s.Pressed, at...)
		}
	}
}

// look serves the site to a browser, and returns what the harness wrote into its own page.
func look(t *testing.T, browser string) (all []seen) {
	t.Helper()
	out, files := built(t, "../..")
	var pages []string
	for name := range files {
		if regexp.MustCompile(`\.html$`).MatchString(name) {
			pages = append(pages, name)
		}
	}
	list, err := json.Marshal(pages)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(out)))
	mux.HandleFunc("/harness", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte("<script>const pages = " + string(list) + "</script>" + harness))
	})
	reported := make(chan []byte, 1)
	mux.HandleFunc("POST /report", func(w http.ResponseWriter, r *http.Request) {
		var body json.RawMessage
		if json.NewDecoder(r.Body).Decode(&body) == nil {
			reported <- body
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	defer server.CloseClientConnections()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	profile, err := os.MkdirTemp("", "site-browser-") // not TempDir, which insists: processes of the browser outlive it for a moment
	require.NoError(t, err)
	defer os.RemoveAll(profile)
	cmd := exec.CommandContext(ctx, browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1600,1200",
		"--user-data-dir="+profile, "--remote-debugging-port=0", server.URL+"/harness")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	require.NoError(t, cmd.Start())
	defer func() { cancel(); _ = cmd.Wait() }()
	select {
	case body := <-reported:
		require.NoError(t, json.Unmarshal(body, &all), html.UnescapeString(string(body)))
	case <-ctx.Done():
		t.Fatal("the browser did not report")
	}
	return all
}
