package face

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a Stage that notes what it is asked for.
type recorder struct {
	mu    sync.Mutex
	asked []string      // guarded by mu
	state int           // guarded by mu
	ended bool          // guarded by mu
	newer chan struct{} // guarded by mu
}

func (s *recorder) note(format string, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, fmt.Sprintf(format, args...))
	return nil
}

func (s *recorder) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state++
	close(s.newer)
	s.newer = make(chan struct{})
}

func (s *recorder) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	close(s.newer)
}

func (s *recorder) Watch() ([]byte, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil
	}
	return fmt.Appendf(nil, `{"state":%d}`, s.state), s.newer
}

func (s *recorder) Press(button string, form url.Values) error {
	switch button {
	case "service/restart":
		return errors.New("it is not down")
	case "threshold":
		if _, err := Number(form, "value", 0, 10); err != nil {
			return err
		}
	}
	return s.note("%s %s", button, form.Encode())
}

func newRecorder() *recorder { return &recorder{newer: make(chan struct{})} }

// press sends a form as a browser does, with those headers.
func press(t *testing.T, h http.Handler, path, form string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:8080"+path, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func mounted(stage Stage) http.Handler {
	mux := http.NewServeMux()
	Register(mux, stage)
	return Protect(mux, "shop.example")
}

func TestButtons(t *testing.T) {
	s := newRecorder()
	h := mounted(s)
	for path, form := range map[string]string{
		"/face/sale": "stock=1&buyers=2&seconds=3", "/face/threshold": "value=7", "/face/service/kill": "", "/face/sale/end": "", "/face/open": "",
		"/face/shops/2/kill": "", "/face/shops/3/restart": "",
	} {
		assert.Equal(t, http.StatusNoContent, press(t, h, path, form, "Origin", "http://127.0.0.1:8080", "Sec-Fetch-Site", "same-origin").Code, path)
	}
	assert.ElementsMatch(t, []string{"sale buyers=2&seconds=3&stock=1", "threshold value=7", "service/kill ", "sale/end ", "open ", "shops/2/kill ", "shops/3/restart "}, s.asked)

	w := press(t, h, "/face/service/restart", "")
	assert.Equal(t, http.StatusConflict, w.Code)
	assert.Equal(t, "it is not down\n", w.Body.String())
}

func TestWrongFields(t *testing.T) {
	s := newRecorder()
	for path, form := range map[string]string{
		"/face/threshold": "value=-1", "/face/threshold?missing": "", "/face/threshold?most": "value=11",
		"/face/threshold?words": "value=many", "/face/threshold?long": "value=" + strings.Repeat("1", longestForm),
	} {
		w := press(t, mounted(s), path, form)
		assert.Equal(t, http.StatusBadRequest, w.Code, path)
		assert.Contains(t, w.Body.String(), "allowed: a whole number", path)
	}
	assert.Empty(t, s.asked)
}

// Another site's page, in the browser of somebody who has this one open, presses no button, and starts nothing.
func TestOtherSitesPressNothing(t *testing.T) {
	s := newRecorder()
	for name, headers := range map[string][]string{
		"another site":                     {"Sec-Fetch-Site", "cross-site"},
		"another port, so another program": {"Sec-Fetch-Site", "same-site"},
		"an old browser":                   {"Origin", "https://evil.example"},
		"a sandboxed frame":                {"Origin", "null"},
	} {
		for _, path := range []string{"/face/open", "/face/service/kill"} {
			assert.Equal(t, http.StatusForbidden, press(t, mounted(s), path, "", headers...).Code, name)
		}
	}
	for _, host := range []string{"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"} {
		for method, path := range map[string]string{http.MethodGet: "/", http.MethodPost: "/face/service/kill"} {
			rebound := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
			rebound.Host = host
			rebound.Header.Set("Origin", "http://"+host)
			w := httptest.NewRecorder()
			mounted(s).ServeHTTP(w, rebound)
			assert.Equal(t, http.StatusForbidden, w.Code, host)
		}
	}
	assert.Empty(t, s.asked)
}

func TestNamesThatAreServed(t *testing.T) {
	for _, host := range []string{"localhost", "localhost:1", "LOCALHOST.:1", "127.0.0.1:8080", "[::1]:8080", "[::1]", "192.168.0.7:80", "Shop.example:8080", ""} {
		assert.True(t, known(host, []string{"shop.example"}), host)
	}
	for _, host := range []string{"evil.example", "shop.example.evil.example", "evil.shop.example:8080"} {
		assert.False(t, known(host, []string{"shop.example"}), host)
	}
}

// The page loads nothing from elsewhere, and runs nothing that is not its own.
func TestThePageIsWhole(t *testing.T) {
	h := mounted(newRecorder())
	for path, kind := range map[string]string{"/": "text/html", "/face/page.css": "text/css", "/face/page.js": "text/javascript"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody))
		assert.Equal(t, http.StatusOK, w.Code, path)
		assert.Contains(t, w.Header().Get("Content-Type"), kind)
		assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
		own := strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", "")
		assert.False(t, strings.Contains(own, "http:"), path)
		assert.False(t, strings.Contains(own, "https:"), path)
		assert.False(t, strings.Contains(own, "innerHTML = "), "text goes in as text")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/nothing", http.NoBody))
	assert.Equal(t, http.StatusNotFound, w.Code)
}

// A browser gets the state at once and after each change, until the server ends.
func TestEvents(t *testing.T) {
	s := newRecorder()
	mux := http.NewServeMux()
	Register(mux, s)
	server := httptest.NewServer(mux)
	defer server.Close()
	at, err := url.JoinPath(server.URL, "/face/events")
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
	require.NoError(t, err)
	resp, err := server.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	lines := bufio.NewScanner(resp.Body)
	next := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		return "the end"
	}
	assert.Equal(t, `{"state":0}`, next())
	s.change()
	assert.Equal(t, `{"state":1}`, next())
	s.end()
	assert.Equal(t, "the end", next())
	assert.Empty(t, s.asked, "who reads starts nothing: a picture on another site does")
}
