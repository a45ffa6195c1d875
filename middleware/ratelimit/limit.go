package ratelimit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wllock/wllock/internal/nametext"
)

// Policy allows Quota requests per Window to each identity. The quota refills evenly, not all at once at the end of the window. Policies of one
// limiter have different names. If a policy is changed, used quota counts for as long as it took to refill, but no longer than the new quota
// takes to refill in whole.
type Policy struct {
	Name   string // in the headers: letters, digits, and . _ / -
	Quota  int
	Window time.Duration // at most ten years
	Burst  int           // requests allowed at once, 0 for Quota. It must refill within ten years
}

// AtOnce returns how many requests are allowed at once.
func (p Policy) AtOnce() int {
	if p.Burst == 0 {
		return p.Quota
	}
	return p.Burst
}

// RetryMemory returns the minimum time for which a limiter must remember a charged request.
func (p Policy) RetryMemory() time.Duration { return max(p.Window, time.Minute) }

// longest is the longest window, and the longest time until a quota is full again.
const longest = 10 * 365 * 24 * time.Hour

// Check returns an error that says what is wrong with the policy, or nil.
func (p Policy) Check() error {
	if nametext.CheckName("", p.Name) != nil || p.Quota <= 0 || p.Window <= 0 || p.Burst < 0 {
		return fmt.Errorf("ratelimit: policy %+v: want a name of letters, digits, and . _ / -, a quota and a window of more than 0", p)
	}
	if p.Window > longest || refill(p, float64(p.AtOnce())) > longest.Seconds() {
		return fmt.Errorf("ratelimit: policy %+v: want a window, and a Burst that refills, of at most %d hours (ten years)", p, longest/time.Hour)
	}
	return nil
}

// Result is the answer of a limiter to one request.
type Result struct {
	Allowed    bool
	Remaining  int           // requests that would be allowed now
	RetryAfter time.Duration // if not allowed: until one is allowed
	ResetAfter time.Duration // until the quota is full again
}

// ErrRefused: the limiter answered that it will not count, and an operator has to fix the cause, such as a missing right or a wrong password.
// Then the middleware refuses requests, because admitted requests would have no limit, unnoticed.
var ErrRefused = errors.New("the limiter refuses")

// Limiter counts requests. Its methods may be called from any number of goroutines.
type Limiter interface {
	// Take charges one request to id. request, if not empty, is the id that the request shares with its retries: a request that was charged
	// within Policy.RetryMemory passes once more without a charge. Both ids are short and consist of letters and digits. An error other than
	// [ErrRefused] means that the limiter is temporarily away.
	Take(ctx context.Context, p Policy, id, request string) (Result, error)
}

// Charge is a policy and the identity that it applies to. With one policy, charge an identity once for each request: a further charge of the
// request passes as its retry.
type Charge struct {
	Policy   Policy
	Identity string
}

// Verdict is the result of several charges.
type Verdict struct {
	Policies []Policy // of all charges
	Results  []Result // of the charges that were checked. The last one decides
}

// Refused returns the policy that refused and when to retry, or nil if none did.
func (v Verdict) Refused() (*Policy, time.Duration) {
	if last := len(v.Results) - 1; last >= 0 && !v.Results[last].Allowed {
		return &v.Policies[last], v.Results[last].RetryAfter
	}
	return nil, 0
}

// ErrIdentity: an identity is empty. All requests without an identity would share one quota.
var ErrIdentity = errors.New("ratelimit: empty identity")

// Take makes charges in order, up to the first that is refused. Use it for middleware of your own.
func Take(ctx context.Context, l Limiter, charges []Charge, request string) (Verdict, error) {
	var v Verdict
	parts := []string{request}
	for _, c := range charges {
		if c.Identity == "" {
			return v, fmt.Errorf("%w for policy %s", ErrIdentity, c.Policy.Name)
		}
		v.Policies = append(v.Policies, c.Policy)
		parts = append(parts, c.Identity)
	}
	if request != "" {
		request = digest(parts...) // two callers may use the same id
	}
	for _, c := range charges { // rule M7
		r, err := l.Take(ctx, c.Policy, digest(c.Policy.Name, c.Identity), request)
		if err != nil {
			return v, err
		}
		v.Results = append(v.Results, r)
		if !r.Allowed {
			break
		}
	}
	return v, nil
}

// digest returns a short hash of parts: an identity may be long, and may be a secret.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
