// Package face is the page of the flash sale: it shows what happens on a Stage, live, and passes on what its buttons ask for.
//
//	browser  GET /            the page, its style and its script
//	         GET /face/events the state of the stage as server-sent events, each the whole of it
//	         POST /face/...   a button, or open: 204, or the reason as text
//
// A GET starts nothing: browsers send one for a picture on any site. The page asks for open when its events begin.
package face

import (
	"embed"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Stage is where the sale happens. Its methods are safe for concurrent use.
type Stage interface {
	// Watch returns the state as JSON, and a channel that is closed when there is a newer one. nil: the stage has ended.
	Watch() (state []byte, newer <-chan struct{})
	// Press does what a button is for, such as shops/2/kill. An error is the reason why it was not done, for people.
	Press(button string, form url.Values) error
}

//go:embed page.html page.css page.js
var files embed.FS

// policy allows the page its own style and script, and to ask where it came from. Nothing else: no frame around it, no form that
// leaves it.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const (
	pace        = 50 * time.Millisecond // between two states that one browser gets: as short as an eye can follow
	heartbeat   = 10 * time.Second      // after which a browser, and proxies on the way, get the same state again
	patience    = 10 * time.Second      // with a browser that does not read
	longestForm = 1 << 10               // is more than any button sends
)

type face struct{ Stage }

// Register adds the page to a mux. Streams of events end with the stage, for nothing else would end them.
func Register(mux *http.ServeMux, stage Stage) {
	f := face{stage}
	mux.HandleFunc("GET /{$}", serveFile("page.html"))
	mux.HandleFunc("GET /face/page.css", serveFile("page.css"))
	mux.HandleFunc("GET /face/page.js", serveFile("page.js"))
	mux.HandleFunc("GET /face/events", f.events)
	mux.HandleFunc("POST /face/{button...}", f.press)
}

func serveFile(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache") // the next version may be on the same port
		http.ServeFileFS(w, r, files, name)
	}
}

// events sends the state whenever it has changed. A browser that was away gets what is, not what was: each event is all of it.
func (f face) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	stream := http.NewResponseController(w)
	for state, newer := f.Watch(); state != nil; state, newer = f.Watch() {
		_ = stream.SetWriteDeadline(time.Now().Add(patience)) // not every ResponseWriter has one
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

func (f face) press(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, longestForm)
	_ = r.ParseForm() // what could not be read is missed below
	err := f.Press(r.PathValue("button"), r.PostForm)
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

// Number returns a field of a form.
func Number(form url.Values, field string, least, most int) (int, error) {
	n, err := strconv.Atoi(form.Get(field))
	if err != nil || n < least || n > most {
		return 0, wrong{fmt.Errorf("%s: allowed: a whole number from %d to %d", field, least, most)}
	}
	return n, nil
}
