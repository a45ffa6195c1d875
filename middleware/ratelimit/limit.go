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

// Policy allows Quota requests per Window to each identity. What is used comes back evenly, not all at the window's end.
type Policy struct {
	Name   string // in the headers: letters, digits, and . _ / -
	Quota  int
	Window time.Duration
	Burst  int // how many of them at once; 0: Quota
}

// AtOnce is how many requests may come at once.
func (p Policy) AtOnce() int {
	if p.Burst == 0 {
		return p.Quota
	}
	return p.Burst
}

// RetryMemory is how long a limiter has to remember a request that was charged, at least.
func (p Policy) RetryMemory() time.Duration { return max(p.Window, time.Minute) }

// Check says what is wrong with a policy.
func (p Policy) Check() error {
	if nametext.CheckName("", p.Name) != nil || p.Quota <= 0 || p.Window <= 0 || p.Burst < 0 {
		return fmt.Errorf("ratelimit: policy %+v: want a name of letters, digits, and . _ / -, a quota and a window of more than 0", p)
	}
	return nil
}

// Result is what a limiter says to a request.
type Result struct {
	Allowed    bool
	Remaining  int           // that would be allowed now
	RetryAfter time.Duration // if not allowed: until one will be
	ResetAfter time.Duration // until all of them will be
}

// Limiter counts requests. Its methods may be called by any number of goroutines.
type Limiter interface {
	// Take charges one request to id. request, if not empty, is what the request has in common with its retries: one that
	// was charged within Policy.RetryMemory passes once more without being charged. Both are short and have no more than
	// letters and digits.
	Take(ctx context.Context, p Policy, id, request string) (Result, error)
}

// Charge is a policy, and to whom it is applied.
type Charge struct {
	Policy   Policy
	Identity string
}

// Verdict is what came of charges.
type Verdict struct {
	Policies []Policy // of all charges
	Results  []Result // of those that were looked at; the last one decides
}

// Refused returns the policy that has refused, and when to come again. nil: none has.
func (v Verdict) Refused() (*Policy, time.Duration) {
	if last := len(v.Results) - 1; last >= 0 && !v.Results[last].Allowed {
		return &v.Policies[last], v.Results[last].RetryAfter
	}
	return nil, 0
}

// ErrIdentity: an identity is empty. It would be one quota for all who have none.
var ErrIdentity = errors.New("ratelimit: empty identity")

// Take makes charges, in their order, up to the first that is refused. It is what the middleware is made of, for those
// who write their own.
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
		request = digest(parts...) // two callers may have thought of the same id
	}
	for _, c := range charges {
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

// digest makes something short of names: an identity may be long, and may be a secret that is nobody else's business.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
