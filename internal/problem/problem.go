// Package problem writes refusals as problem details (RFC 9457), the same way in all middleware.
package problem

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ContentType is the media type of a problem.
const ContentType = "application/problem+json"

// QuotaExceeded is the type of the draft that defines the RateLimit fields.
const QuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// docs explains every other type, each under a heading with its name.
const docs = "https://github.com/wllock/wllock/blob/main/docs/middleware.md#"

// Problem is a refusal as clients see it. It contains nothing of the request: no key, no header, no body.
type Problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	RetryAfterMS     int64    `json:"retry_after_ms,omitempty"` // 0: not known
}

// Type is the URI of a problem type of this library.
func Type(name string) string { return docs + name }

// Write sends the problem. No cache may keep it, whatever outer middleware has set for all responses. Other header fields stay: a
// compressing middleware may have set Content-Encoding for what it makes of this body.
func (p Problem) Write(w http.ResponseWriter) {
	h := w.Header()
	h.Del("Content-Length")
	maps.DeleteFunc(h, func(name string, _ []string) bool { return isFreshness(name) })
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // fails only if the client has disconnected
}

// Fields are header fields that belong to one answer: they describe its body, or say who may keep it and when to come again.
type Fields http.Header

// FieldsOf returns those that h has now. nil: it has none.
func FieldsOf(h http.Header) (f Fields) {
	for name, values := range h {
		if isOfAnswer(name) {
			if f == nil {
				f = Fields{}
			}
			f[name] = values
		}
	}
	return f
}

// Restore undoes what has been done to such fields of h since FieldsOf, for an answer that takes the place of another one.
func (f Fields) Restore(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return isOfAnswer(name) })
	maps.Copy(h, http.Header(f))
}

// isOfAnswer reports whether a header field belongs to one answer. Content-Security-Policy and its like are for the whole site.
func isOfAnswer(name string) bool {
	name = http.CanonicalHeaderKey(name) // some write ETag, which net/http sends as it is
	switch name {
	case "Accept-Ranges", "Etag", "Last-Modified", "Retry-After", "Trailer":
		return true
	}
	return strings.HasPrefix(name, "Content-") && !strings.HasPrefix(name, "Content-Security-") || strings.HasSuffix(name, "Digest") || isFreshness(name)
}

// isFreshness reports whether a header field says for how long, and by whom, a response may be kept. CDNs have fields of their own, such
// as CDN-Cache-Control, which they obey before Cache-Control.
func isFreshness(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return strings.HasSuffix(name, "Cache-Control") || name == "Surrogate-Control" || name == "Edge-Control" || name == "Expires" || name == "Age"
}

// RetryAfter sets the header of that name, in whole seconds: rounded up, so that no client returns too early, and jittered.
func RetryAfter(h http.Header, d time.Duration) {
	h.Set("Retry-After", strconv.FormatInt(jittered(max(1, roundedUp(d, time.Second))), 10))
}

// Milliseconds returns d for RetryAfterMS: rounded up, and jittered. It is 0 if d is not known.
func Milliseconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return jittered(max(minDelay, roundedUp(d, time.Millisecond)))
}

// minDelay is the shortest delay in milliseconds: less would be a burst.
const minDelay = 10

func roundedUp(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }

// jittered adds a random part of up to half as much, at least one, so that clients that were refused together do not return
// together.
func jittered(n int64) int64 { return n + rand.Int64N(max(1, n/2)+1) }
