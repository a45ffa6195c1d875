// Package debug shows the locks of a process over HTTP: holders, waiters, and for how long.
//
//	admin.Handle("GET /debug/wllock", debug.Handler(locker))
//
// Mount it where only operators have access: keys may name customers and their orders, unless the Locker has wllock.WithKeyRedaction. The
// handler serves a page for browsers, a table for terminals (curl), and JSON for programs, by the Accept header or ?format=html, text or
// json. It is read-only, needs no script, and shows the 100 keys and the 50 names with the most waiters of each Locker. With ?refresh=2 a
// browser reloads it every two seconds.
//
// On a loopback address the handler accepts only localhost and addresses as the host: any other name there may belong to another site whose
// owner has made it point to this machine (DNS rebinding). A proxy on the same machine must set the Host header to one of these.
//
// In the JSON a lock has the members of [wllock.LockInfo], and a name those of [wllock.NameStats]. A Go program decodes into these types.
package debug

import (
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/wllock/wllock"
)

// Handler returns a handler that shows the locks of one or more Lockers on a page. It panics if there is none, or if one is nil.
func Handler(lockers ...*wllock.Locker) http.Handler {
	if len(lockers) == 0 || slices.Contains(lockers, nil) {
		panic("debug: Handler(nil): want a Locker")
	}
	lockers = slices.Clone(lockers)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "read-only: use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		if rebound(r) {
			http.Error(w, "on a loopback address this page answers to localhost or an address: a proxy has to set the Host header to one", http.StatusForbidden)
			return
		}
		secure(w.Header())
		p := take(lockers)
		switch format(r) {
		case asHTML:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			p.writeHTML(w, refresh(r))
		case asJSON:
			w.Header().Set("Content-Type", "application/json")
			p.writeJSON(w)
		default:
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			p.writeText(w)
		}
	})
}

// rebound reports whether a request that came to a loopback address has a name of elsewhere.
func rebound(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() || r.Host == "" {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	return net.ParseIP(host) == nil && !strings.EqualFold(host, "localhost")
}

// secure sets the headers of a page whose content comes from clients, keys, and which nobody but the operator is to see: no cache
// keeps it, no other site frames or loads it, and a browser runs nothing on it and loads nothing for it.
func secure(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Add("Vary", "Accept")
}

const (
	asText = "text"
	asHTML = "html"
	asJSON = "json"
)

// format returns what the client asks for: by the query, else the most wanted of what it accepts, the first of equals.
// Who takes anything, as curl does, gets text.
func format(r *http.Request) string {
	if f := r.URL.Query().Get("format"); f != "" {
		return f
	}
	best, wanted := asText, 0.0
	for accept := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		kind, params, err := mime.ParseMediaType(accept)
		if err != nil {
			continue
		}
		q, err := strconv.ParseFloat(params["q"], 64)
		if err != nil {
			q = 1
		}
		if f, ok := formats[kind]; ok && q > wanted {
			best, wanted = f, q
		}
	}
	return best
}

var formats = map[string]string{
	"text/html": asHTML, "application/xhtml+xml": asHTML, "application/json": asJSON, "application/*": asJSON,
	"text/plain": asText, "text/*": asText, "*/*": asText,
}

// maxRefresh is an hour, in seconds: beyond that it is a mistake.
const maxRefresh = 3600

// refresh returns after how many seconds the browser is to load the page again; 0: never.
func refresh(r *http.Request) int {
	n, err := strconv.Atoi(r.URL.Query().Get("refresh"))
	if err != nil || n < 1 || n > maxRefresh {
		return 0
	}
	return n
}
