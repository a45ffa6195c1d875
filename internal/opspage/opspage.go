// Package opspage has what pages for operators have in common: whom they answer, in which form, their headers and their style. They only
// read, and need no script.
package opspage

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the frame of a page, and its style
	"encoding/base64"
	"html/template"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Page is what is shown at one moment.
type Page interface {
	HTML(w io.Writer, refresh int) // a browser loads it again after so many seconds. 0: never
	JSON(w io.Writer)
	Text(w io.Writer)
}

// Admitted reports whether a page may answer the request, and sets its headers. Else the answer says why not.
func Admitted(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "read-only: use GET or HEAD", http.StatusMethodNotAllowed)
		return false
	}
	if rebound(r) {
		http.Error(w, "on a loopback address this page answers to localhost or an address: a proxy has to set the Host header to one", http.StatusForbidden)
		return false
	}
	secure(w.Header())
	return true
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
	h.Set("Content-Security-Policy", Policy("'none'"))
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Add("Vary", "Accept")
}

// Answer writes a page in the form that the client asks for.
func Answer(w http.ResponseWriter, r *http.Request, p Page) {
	switch format(r) {
	case asHTML:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		p.HTML(w, refresh(r))
	case asJSON:
		w.Header().Set("Content-Type", "application/json")
		p.JSON(w)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		p.Text(w)
	}
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

var (
	//go:embed frame.html
	frameText string
	//go:embed page.css
	styleText string

	styleHash = sha256.Sum256([]byte(styleText))
)

// Policy allows a page its own style, by its hash, forms that are sent to there, and nothing else: no script, no image, no frame around
// it. A key that got past the escaping of html/template could still run and load nothing.
func Policy(forms string) string {
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(styleHash[:]) +
		"'; base-uri 'none'; form-action " + forms + "; frame-ancestors 'none'"
}

// Backend is the state of a backend in words.
type Backend struct {
	Available bool
	Since     string // for how long it is so
	Answered  string // how long ago its last answer was. "": that is not known
	Error     string // why it is not available
}

// String is all of it in one line.
func (b Backend) String() string {
	age := b.Answered
	if age != "" {
		age = ", last answer " + age + " ago"
	}
	if b.Available {
		return "backend available for " + b.Since + age
	}
	return "BACKEND NOT AVAILABLE for " + b.Since + age + ": " + strconv.Quote(b.Error)
}

// Term is a word of a page, and what it means.
type Term [2]string

// Template makes that of a page, which defines "title" and "body". It may use "legend" of Terms, and "backend" of a Backend. What it shows has
// a Refresh.
func Template(text string) *template.Template {
	style := func() template.CSS { return template.CSS(styleText) } //nolint:gosec // it is ours
	frame := template.Must(template.New("page").Funcs(template.FuncMap{"style": style}).Parse(frameText))
	return template.Must(frame.Parse(text))
}

// Write writes a page from its template.
func Write(w io.Writer, t *template.Template, data any) {
	var b bytes.Buffer // a template that fails half-way must not leave half a page
	if err := t.Execute(&b, data); err != nil {
		_, _ = io.WriteString(w, "the page cannot be shown; ?format=text can\n")
		return
	}
	_, _ = b.WriteTo(w) // fails only if the client has disconnected
}
