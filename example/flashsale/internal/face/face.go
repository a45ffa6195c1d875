// Package face is the page of the flash sale: it shows what happens on a Stage, live, and passes on what its buttons ask for.
//
//	browser  GET /            the page, its style and its script
//	         GET /face/events the state of the stage as server-sent events, each the whole of it
//	         POST /face/...   a button; 204, or the reason as text
package face

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"time"
)

// Plan is a sale that somebody asks for.
type Plan struct {
	Stock   int // pieces
	Buyers  int // over all shops
	Seconds int // within which they come
}

// Stage is where the sale happens. Its methods are safe for concurrent use; an error of one is the reason why it was not done, for people.
type Stage interface {
	// Open is called for each browser that comes. The first one opens the stage, or the next if that was not possible.
	Open()
	// Watch returns the state as JSON, and a channel that is closed when there is a newer one.
	Watch() (state []byte, newer <-chan struct{})
	StartSale(ctx context.Context, p Plan) error
	EndSale(ctx context.Context) error
	SetThreshold(ctx context.Context, n int) error
	KillService(ctx context.Context) error
	RestartService(ctx context.Context) error
	KillShop(ctx context.Context, n int) error
	RestartShop(ctx context.Context, n int) error
}

//go:embed page.html page.css page.js
var files embed.FS

// policy allows the page its own style and script, and to ask where it came from. Nothing else: no frame around it, no form that
// leaves it.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const (
	// pace is between two states that one browser gets: as short as an eye can follow.
	pace = 50 * time.Millisecond
	// heartbeat shows a browser, and proxies on the way, that the stream is alive while nothing happens.
	heartbeat = 10 * time.Second
	// patience bounds a write to a browser that does not read.
	patience = 10 * time.Second
	// longestForm is more than any button sends.
	longestForm = 1 << 10
)

type face struct {
	stage Stage
	ended <-chan struct{}
}

// Register adds the page to a mux. Streams of events end with ended, for nothing else would end them.
func Register(mux *http.ServeMux, stage Stage, ended <-chan struct{}) {
	f := &face{stage: stage, ended: ended}
	for path, file := range map[string]string{"GET /{$}": "page.html", "GET /face/page.css": "page.css", "GET /face/page.js": "page.js"} {
		mux.HandleFunc(path, serveFile(file))
	}
	mux.HandleFunc("GET /face/events", f.events)
	mux.HandleFunc("POST /face/sale", f.sale)
	mux.HandleFunc("POST /face/threshold", button(func(r *http.Request) error {
		n, err := number(r, "value", 0, 1_000_000)
		if err != nil {
			return err
		}
		return stage.SetThreshold(r.Context(), n)
	}))
	mux.HandleFunc("POST /face/sale/end", button(func(r *http.Request) error { return stage.EndSale(r.Context()) }))
	mux.HandleFunc("POST /face/service/kill", button(func(r *http.Request) error { return stage.KillService(r.Context()) }))
	mux.HandleFunc("POST /face/service/restart", button(func(r *http.Request) error { return stage.RestartService(r.Context()) }))
	mux.HandleFunc("POST /face/shops/{n}/kill", onShop(stage.KillShop))
	mux.HandleFunc("POST /face/shops/{n}/restart", onShop(stage.RestartShop))
}

func serveFile(name string) http.HandlerFunc {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		panic(err) // it is embedded above
	}
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache") // the next version may be on the same port
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
	}
}

// events sends the state whenever it has changed. A browser that was away gets what is, not what was: each event is all of it.
func (f *face) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	stream := http.NewResponseController(w)
	send := func(format string, args ...any) bool {
		_ = stream.SetWriteDeadline(time.Now().Add(patience)) // not every ResponseWriter has one
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && stream.Flush() == nil
	}
	f.stage.Open()
	state, newer := f.stage.Watch()
	for open := send("retry: 500\ndata: %s\n\n", state); open; {
		select {
		case <-newer:
			time.Sleep(pace) // what changes meanwhile comes along
			state, newer = f.stage.Watch()
			open = send("data: %s\n\n", state)
		case <-time.After(heartbeat):
			open = send(": nothing new\n\n")
		case <-r.Context().Done():
			return
		case <-f.ended:
			return
		}
	}
}

func (f *face) sale(w http.ResponseWriter, r *http.Request) {
	button(func(r *http.Request) (err error) {
		var p Plan
		for _, field := range []struct {
			name string
			to   *int
			most int
		}{{"stock", &p.Stock, 100_000}, {"buyers", &p.Buyers, 30_000}, {"seconds", &p.Seconds, 60}} {
			if *field.to, err = number(r, field.name, 1, field.most); err != nil {
				return err
			}
		}
		return f.stage.StartSale(r.Context(), p)
	})(w, r)
}

// wrong is an error of a request that could never be done.
type wrong struct{ error }

func number(r *http.Request, field string, least, most int) (int, error) {
	n, err := strconv.Atoi(r.PostFormValue(field))
	if err != nil || n < least || n > most {
		return 0, wrong{fmt.Errorf("%s: allowed: a whole number from %d to %d", field, least, most)}
	}
	return n, nil
}

func onShop(do func(context.Context, int) error) http.HandlerFunc {
	return button(func(r *http.Request) error {
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil {
			return wrong{fmt.Errorf("shop: allowed: a whole number")}
		}
		return do(r.Context(), n)
	})
}

func button(do func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, longestForm)
		err := do(r)
		switch _, isWrong := err.(wrong); {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case isWrong:
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			http.Error(w, err.Error(), http.StatusConflict)
		}
	}
}
