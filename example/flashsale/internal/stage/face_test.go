package stage

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/example/flashsale/internal/sale"
)

// mounted is the page of a stage with a threshold of 50, which ends with the test or by end.
func mounted(t *testing.T) (h http.Handler, end func()) {
	ctx, end := context.WithCancel(t.Context())
	st, mux := newStage(ctx, sale.Settings{Threshold: 50}, io.Discard), http.NewServeMux()
	st.register(mux)
	t.Cleanup(func() {
		end()
		<-st.ended
	})
	return protect(mux, "shop.example"), end
}

// ask sends a request as a browser on this machine does, with those headers.
func ask(t *testing.T, h http.Handler, method, address, form string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const here = "http://127.0.0.1:8080"

func TestButtons(t *testing.T) {
	h, _ := mounted(t)
	own := []string{"Origin", here, "Sec-Fetch-Site", "same-origin"}
	assert.Equal(t, http.StatusNoContent, ask(t, h, http.MethodPost, here+"/face/threshold", "value=7", own...).Code)
	w := ask(t, h, http.MethodPost, here+"/face/service/restart", "", own...)
	assert.Equal(t, http.StatusConflict, w.Code)
	assert.Equal(t, "the lock service is not down\n", w.Body.String())
	for path, form := range map[string]string{
		"/face/threshold": "value=-1", "/face/threshold?missing": "", "/face/threshold?most": "value=1000001",
		"/face/threshold?words": "value=many", "/face/threshold?long": "value=" + strings.Repeat("1", longestForm),
	} {
		w := ask(t, h, http.MethodPost, here+path, form)
		assert.Equal(t, http.StatusBadRequest, w.Code, path)
		assert.Contains(t, w.Body.String(), "allowed: a whole number", path)
	}
}

// Another site's page, in the browser of somebody who has this one open, presses no button, and starts nothing.
func TestOtherSitesPressNothing(t *testing.T) {
	h, _ := mounted(t)
	for name, headers := range map[string][]string{
		"another site":                     {"Sec-Fetch-Site", "cross-site"},
		"another port, so another program": {"Sec-Fetch-Site", "same-site"},
		"an old browser":                   {"Origin", "https://evil.example"},
		"a sandboxed frame":                {"Origin", "null"},
	} {
		for _, path := range []string{"/face/open", "/face/service/kill"} {
			assert.Equal(t, http.StatusForbidden, ask(t, h, http.MethodPost, here+path, "", headers...).Code, name)
		}
	}
	for _, host := range []string{"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"} {
		for method, path := range map[string]string{http.MethodGet: "/", http.MethodPost: "/face/service/kill"} {
			site := "http://" + host
			assert.Equal(t, http.StatusForbidden, ask(t, h, method, site+path, "", "Origin", site).Code, host)
		}
	}
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
	h, _ := mounted(t)
	for path, kind := range map[string]string{"/": "text/html", "/face/page.css": "text/css", "/face/page.js": "text/javascript"} {
		w := ask(t, h, http.MethodGet, "http://localhost"+path, "")
		assert.Equal(t, http.StatusOK, w.Code, path)
		assert.Contains(t, w.Header().Get("Content-Type"), kind)
		assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
		own := strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", "")
		assert.False(t, strings.Contains(own, "http:"), path)
		assert.False(t, strings.Contains(own, "https:"), path)
		assert.False(t, strings.Contains(own, "innerHTML = "), "text goes in as text")
	}
	assert.Equal(t, http.StatusNotFound, ask(t, h, http.MethodGet, "http://localhost/nothing", "").Code)
	assert.Equal(t, http.StatusNotFound, ask(t, h, http.MethodGet, "http://localhost/face/nothing", "").Code)
}

// A browser gets the state at once and after each change, until the server ends.
func TestEvents(t *testing.T) {
	h, end := mounted(t)
	server := httptest.NewServer(h)
	defer server.Close()
	resp := send(t, http.MethodGet, server.URL+"/face/events", "")
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
	assert.Contains(t, next(), `"threshold":50`)
	require.Equal(t, http.StatusNoContent, ask(t, h, http.MethodPost, here+"/face/threshold", "value=7").Code)
	changed := next()
	assert.Contains(t, changed, `"threshold":7`)
	assert.Contains(t, changed, `"shops":null`, "who reads starts nothing: a picture on another site does")
	end()
	assert.Equal(t, "the end", next())
}
