package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/wllock/wllock/internal/problem"
)

// Rule is a policy and the identity it applies to.
type Rule struct {
	Policy Policy // its name is different in each rule
	// Of returns the identity that a request is charged to, such as its caller or its key. The key functions of httpguard can be used. If it
	// returns an error or an empty identity, the request is refused with 400.
	Of func(r *http.Request) (string, error)
}

// Option configures the middleware.
type Option func(*handler)

// WithRequestID sets f, which returns the id that a request shares with its retries (default: the header Idempotency-Key), or "" for none.
func WithRequestID(f func(r *http.Request) string) Option {
	if f == nil {
		panic("ratelimit: WithRequestID(nil): want a function")
	}
	return func(h *handler) { h.requestID = f }
}

// WithFailClosed refuses requests with 503 also while the limiter is away, and not only while it refuses ([ErrRefused]).
func WithFailClosed() Option { return func(h *handler) { h.failClosed = true } }

// New returns a middleware that admits a request if all rules allow it. Put it before the middleware of httpguard. New panics on invalid
// arguments, and without a rule.
func New(limiter Limiter, rules []Rule, opts ...Option) func(http.Handler) http.Handler {
	if limiter == nil {
		panic("ratelimit: New needs a Limiter")
	}
	if len(rules) == 0 {
		panic("ratelimit: New: no rules: nothing would be limited")
	}
	names := map[string]bool{}
	for _, r := range rules {
		if err := r.Policy.Check(); err != nil {
			panic(err.Error())
		}
		if names[r.Policy.Name] {
			panic(fmt.Sprintf("ratelimit: two rules have a policy %s: want a name for each", r.Policy.Name))
		}
		names[r.Policy.Name] = true
		if r.Of == nil {
			panic(fmt.Sprintf("ratelimit: policy %s: Of is nil: want a function", r.Policy.Name))
		}
	}
	h := handler{limiter: limiter, rules: rules, policies: policyField(rules),
		requestID: func(r *http.Request) string { return r.Header.Get("Idempotency-Key") }}
	for _, o := range opts {
		if o == nil {
			panic("ratelimit: New: an option is nil")
		}
		o(&h)
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("ratelimit: the handler is nil")
		}
		h := h
		h.next = next
		return &h
	}
}

type handler struct {
	limiter    Limiter
	rules      []Rule
	policies   string // RateLimit-Policy
	requestID  func(*http.Request) string
	failClosed bool
	next       http.Handler
}

// ServeHTTP implements http.Handler. It sets its header fields before it refuses, and adds to those of outer limits: the
// fields of the draft are lists.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("RateLimit-Policy", h.policies) // rule M7
	charges := make([]Charge, len(h.rules))
	for i, rule := range h.rules {
		id, err := rule.Of(r)
		if err != nil || id == "" {
			invalid(w, err)
			return
		}
		charges[i] = Charge{rule.Policy, id}
	}
	v, err := Take(r.Context(), h.limiter, charges, h.requestID(r))
	if len(v.Results) > 0 {
		w.Header().Add("RateLimit", stateField(v))
	}
	if err != nil && (h.failClosed || errors.Is(err, ErrRefused)) {
		unavailable(w) // also if the client has left: the next handler may not notice, and nothing was charged
		return
	}
	if policy, after := v.Refused(); policy != nil {
		exceeded(w, policy.Name, after)
		return
	}
	h.next.ServeHTTP(w, r) // also if the limiter is away
}

// policyField is `"caller";q=5;w=1, "product";q=1000;w=1`: quota, and window in seconds.
func policyField(rules []Rule) string {
	items := make([]string, len(rules))
	for i, r := range rules {
		items[i] = fmt.Sprintf("%q;q=%d;w=%d", r.Policy.Name, r.Policy.Quota, seconds(r.Policy.Window))
	}
	return strings.Join(items, ", ")
}

// stateField is `"caller";r=3;t=1`: what remains, and after how many seconds the quota is full again.
func stateField(v Verdict) string {
	items := make([]string, len(v.Results))
	for i, r := range v.Results {
		items[i] = fmt.Sprintf("%q;r=%d;t=%d", v.Policies[i].Name, r.Remaining, seconds(r.ResetAfter))
	}
	return strings.Join(items, ", ")
}

// seconds rounds up to whole seconds.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func exceeded(w http.ResponseWriter, policy string, after time.Duration) {
	problem.RetryAfter(w.Header(), after)
	p := of(problem.QuotaExceeded, http.StatusTooManyRequests, "Rate limit exceeded. Try again later.")
	p.ViolatedPolicies, p.RetryAfterMS = []string{policy}, problem.Milliseconds(after)
	p.Write(w)
}

func unavailable(w http.ResponseWriter) {
	problem.RetryAfter(w.Header(), 0)
	of(problem.Type("backend-unavailable"), http.StatusServiceUnavailable, "The rate limit service is unavailable. Try again later.").Write(w)
}

func invalid(w http.ResponseWriter, err error) {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		of(problem.Type("body-too-large"), http.StatusRequestEntityTooLarge, "The request body is longer than allowed.").Write(w)
		return
	}
	of(problem.Type("invalid-key"), http.StatusBadRequest, "The identity of the request is missing or malformed.").Write(w)
}

func of(kind string, status int, detail string) problem.Problem {
	return problem.Problem{Type: kind, Title: http.StatusText(status), Status: status, Detail: detail}
}
