package stage

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed page.html page.css page.js
var files embed.FS

// policy allows the page its own style and script, and to ask where it came from. Nothing else: no frame around it, no form that
// leaves it.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const (
	pace        = 50 * time.Millisecond // between two states that one browser gets: as short as an eye can follow
	heartbeat   = 10 * time.Second      // after which a browser, and proxies on the way, get the same state again
	writeTime   = 10 * time.Second      // for a browser that does not read
	longestForm = 1 << 10               // is more than any button sends
)

// register adds the page to a mux: it shows what happens on the stage, live, and passes on what its buttons ask for.
//
//	browser  GET /            the page; its style and its script are beside it
//	         GET /face/events the state of the stage as server-sent events, each the whole of it
//	         POST /face/...   a button, or open: 204, or the reason as text
//
// A GET starts nothing: browsers send one for a picture on any site. The page asks for open when its events begin.
func (st *stage) register(mux *http.ServeMux) {
	file := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache") // the next version may be on the same port
		http.ServeFileFS(w, r, files, cmp.Or(r.PathValue("file"), "page.html"))
	}
	mux.HandleFunc("GET /{$}", file)
	mux.HandleFunc("GET /face/{file}", file)
	mux.HandleFunc("GET /face/events", st.events)
	mux.HandleFunc("POST /face/{button...}", st.press)
}

// events sends the state whenever it has changed, until the stage ends, for nothing else would end it. A browser that was away gets what
// is, not what was: each event is all of it.
func (st *stage) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	stream := http.NewResponseController(w)
	for {
		var state []byte
		var newer chan struct{}
		if st.look(func(sc *scene) (err error) {
			if sc.Sale != nil {
				sc.Sale.describe()
			}
			state, err = json.Marshal(sc.pageState)
			newer = sc.newer
			return err
		}) != nil {
			return
		}
		_ = stream.SetWriteDeadline(time.Now().Add(writeTime)) // not every ResponseWriter has one
		if _, err := fmt.Fprintf(w, "retry: 500\ndata: %s\n\n", state); err != nil || stream.Flush() != nil {
			return
		}
		select {
		case <-newer:
			time.Sleep(pace) // what changes meanwhile comes along
		case <-time.After(heartbeat):
		case <-r.Context().Done():
			return
		}
	}
}

func (st *stage) press(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, longestForm)
	_ = r.ParseForm() // what could not be read is missed below
	err := st.ask(func(sc *scene) error { return sc.press(r.PathValue("button"), r.PostForm) })
	switch err.(type) {
	case nil:
		w.WriteHeader(http.StatusNoContent)
	case wrong:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// wrong is an error of a request that could never be done.
type wrong struct{ error }

// number returns a field of a form.
func number(form url.Values, field string, least, most int) (int, error) {
	n, err := strconv.Atoi(form.Get(field))
	if err != nil || n < least || n > most {
		return 0, wrong{fmt.Errorf("%s: allowed: a whole number from %d to %d", field, least, most)}
	}
	return n, nil
}

// protect refuses what other sites' pages send through the browser of somebody who can reach this one: requests that change
// something and come from elsewhere (http.CrossOriginProtection, by Sec-Fetch-Site and Origin), and hosts that are neither an address
// nor localhost nor one of names. Such a host is another site's, whose owner has made it point here (DNS rebinding), so that its pages
// are of the same origin. Programs send no such headers, and are let in by address.
func protect(h http.Handler, names ...string) http.Handler {
	own := http.NewCrossOriginProtection().Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !known(r.Host, names) {
			http.Error(w, "this host name is not served here: use an address, or start flashsale with -names", http.StatusForbidden)
			return
		}
		own.ServeHTTP(w, r)
	})
}

// known reports whether a Host header is an address, which no other site can have, the name of the loopback interface, or one of names.
// None at all comes from a program: browsers send one.
func known(host string, names []string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
	return host == "" || net.ParseIP(name) != nil ||
		slices.ContainsFunc(append(names, "localhost"), func(n string) bool { return strings.EqualFold(n, name) })
}
