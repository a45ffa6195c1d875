// Package problem writes refusals as problem details (RFC 9457), alike in all middleware.
package problem

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// ContentType is the media type of a problem.
const ContentType = "application/problem+json"

// QuotaExceeded is the type of the draft that defines the RateLimit fields.
const QuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// docs explains every other type, each under a heading of its name.
const docs = "https://github.com/wllock/wllock/blob/main/docs/middleware.md#"

// Problem is a refusal as clients see it. Nothing of the request is in it: no key, no header, no body.
type Problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// Type is the URI of a problem type of this library.
func Type(name string) string { return docs + name }

// Header sets the fields of a response that has a problem, and takes back those that a handler has meant for another
// body.
func Header(h http.Header) {
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// Write sends the problem.
func (p Problem) Write(w http.ResponseWriter) {
	Header(w.Header())
	w.WriteHeader(p.Status)
	p.WriteBody(w)
}

// WriteBody sends what follows the header.
func (p Problem) WriteBody(w http.ResponseWriter) {
	_ = json.NewEncoder(w).Encode(p) // fails only if the client is gone
}

// RetryAfter sets the header of that name, which has whole seconds: rounded up, so that nobody comes too early, and up
// to half as long again, at least a second, by chance, so that those who were refused together do not come back together.
func RetryAfter(h http.Header, d time.Duration) {
	seconds := max(1, int64((d+time.Second-1)/time.Second))
	h.Set("Retry-After", strconv.FormatInt(seconds+rand.Int64N(max(1, seconds/2)+1), 10))
}
