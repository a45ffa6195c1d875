package redlock

import (
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// aging compares the age that a server tells of its data with our monotonic clock. If it has grown by more, the server's clock was set
// forward, and votes have expired there too early: so that server is born anew for us (rule Q5), since the two majorities of a split
// vote may share just this one. An age is told after the question was sent, and before the answer is here, so what is between two ages
// is at most what is between the first question and the second answer. Drift is allowed for.
//
// It belongs to a node, and all attempts share it. Answers may come in any order: one that was sent before the last one is compared,
// and is not kept.
type aging struct {
	mu    sync.Mutex
	sent  time.Time     // guarded by mu; of the last question that was answered with an age; zero: none
	age   time.Duration // guarded by mu
	leapt time.Time     // guarded by mu; when we noticed the last step; zero: never
}

// vouchedAge is beyond the age of any server, but one that is vouched for: that was born in 1970.
const vouchedAge = 30 * 365 * 24 * time.Hour

// trust returns how old the server's data is for us: as it says, if its clock was not set forward meanwhile. sent is zero for a notice.
func (g *aging) trust(sent, now time.Time, age time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch passed := now.Sub(g.sent); {
	case g.sent.IsZero():
	case age > vouchedAge && g.age < vouchedAge: // an operator knows better
		g.sent, g.leapt = time.Time{}, time.Time{}
	case age-g.age > passed+distributed.Drift(passed):
		g.sent, g.leapt = time.Time{}, now
	}
	if sent.After(g.sent) {
		g.sent, g.age = sent, age
	}
	if g.leapt.IsZero() {
		return age
	}
	return min(age, now.Sub(g.leapt))
}
