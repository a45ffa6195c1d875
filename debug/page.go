package debug

import (
	"cmp"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/opspage"
)

const (
	// limit is the maximum number of keys shown per Locker: more than one reads, and little to send.
	limit = 100
	// nameLimit is the same for names, of which a program has dozens.
	nameLimit = 50
)

// started is when the process began, to within its initialization.
var started = time.Now()

// page is the data of a response.
type page struct {
	at      time.Time
	pid     int
	uptime  time.Duration
	lockers []section
}

// section is the part of a Locker.
type section struct {
	at        time.Time
	system    string
	instance  string
	stats     wllock.Stats
	names     []nameLine // those with the most waiters first
	moreNames bool
	locks     []wllock.LockInfo
	moreLocks bool
	slowest   *wllock.LockInfo // the one that a caller has held for the longest time, over all keys; nil: none is held
}

type nameLine struct {
	Name string
	wllock.NameStats
}

func take(lockers []*wllock.Locker) page {
	now := time.Now()
	p := page{at: now, pid: os.Getpid(), uptime: now.Sub(started)}
	for _, l := range lockers {
		p.lockers = append(p.lockers, takeOne(l))
	}
	return p
}

func takeOne(l *wllock.Locker) section {
	s := section{at: time.Now(), system: l.System(), instance: l.Instance(), stats: l.Stats()}
	s.locks = l.Locks(math.MaxInt) // it looks at all in any case, and the slowest may have no waiters
	for i := range s.locks {
		if k := s.locks[i]; k.Holders > 0 && !k.Staying && (s.slowest == nil || k.HeldFor > s.slowest.HeldFor) {
			s.slowest = &k
		}
	}
	s.locks, s.moreLocks = cut(s.locks, limit)
	for name, n := range s.stats.Names {
		s.names = append(s.names, nameLine{name, n})
	}
	slices.SortFunc(s.names, func(a, b nameLine) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Acquired, a.Acquired), cmp.Compare(a.Name, b.Name))
	})
	s.names, s.moreNames = cut(s.names, nameLimit)
	return s
}

func cut[T any](all []T, n int) (shown []T, more bool) {
	if len(all) <= n {
		return all, false
	}
	return slices.Clone(all[:n]), true
}

// holder returns the holder in a word: its own process is not named in each line.
func (s section) holder(l wllock.LockInfo) string {
	switch l.Holder {
	case "":
		return "-"
	case s.instance:
		return "here"
	}
	return nametext.Quote(l.Holder)
}

// backend returns the state of the backend. Nothing is asked while the Locker is idle.
func (s section) backend() opspage.Backend {
	is := s.stats.Backend
	b := opspage.Backend{Available: is.Available, Since: short(s.at.Sub(is.Since))}
	if !is.Answered.IsZero() {
		b.Answered = short(max(s.at.Sub(is.Answered), 0))
	}
	if is.Err != nil {
		b.Error = is.Err.Error()
	}
	return b
}

// lostLine is the last lock that was lost.
type lostLine struct{ Key, Ago, Why string }

// lastLost returns nil if none was lost yet.
func (s section) lastLost() *lostLine {
	l := s.stats.LastLost
	if l == nil {
		return nil
	}
	return &lostLine{nametext.Quote(l.Key), short(max(s.at.Sub(l.At), 0)), l.Err.Error()}
}

// jobLine is the latest run of a job.
type jobLine struct {
	Job, Last, Took, Result, Next string
	OK                            bool
}

// jobs returns nothing in a process that has run none.
func (s section) jobs() (lines []jobLine) {
	for _, r := range s.stats.Runs {
		l := jobLine{
			Job: nametext.Quote(r.Key), Last: short(max(s.at.Sub(r.Ended()), 0)) + " ago", Took: short(r.Took), Result: r.Result, Next: "any time",
			OK: r.Result == distributed.RunOK,
		}
		if r.Until.After(s.at) {
			l.Next = "in " + short(r.Until.Sub(s.at))
		}
		lines = append(lines, l)
	}
	return lines
}

// left returns the remaining time of a lease, without renewals.
func (s section) left(until time.Time) string {
	if until.IsZero() {
		return "-"
	}
	return short(until.Sub(s.at))
}

// threshold returns how many callers may wait for a key.
func (s section) threshold(key string) int {
	_, rest, _ := strings.Cut(key, ":")
	name, _, _ := strings.Cut(rest, ":")
	if n, ok := s.stats.Names[name]; ok {
		return n.Threshold
	}
	return wllock.Unlimited // a name of those that are counted together
}

// state returns the state of a lock in one word.
func state(l wllock.LockInfo) string {
	switch {
	case l.Holders > 0 && l.Degraded:
		return "degraded"
	case l.Staying:
		return "staying"
	case l.Holders > 0:
		return "held"
	case l.AtBackend:
		return "queued"
	case l.Lingering:
		return "lingering"
	default:
		return "passing"
	}
}

// turn returns the average turn of a name.
func turn(n nameLine) string {
	if n.TurnTime == 0 {
		return "-" // none has ended
	}
	return short(n.TurnTime)
}

func uptime(d time.Duration) string { return d.Round(time.Second).String() }

// short rounds d to the digits that matter.
func short(d time.Duration) string {
	switch {
	case d.Abs() < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d.Abs() < time.Minute:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
