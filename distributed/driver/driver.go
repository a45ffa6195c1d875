package driver

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// Driver speaks to one service. W is what it keeps of each attempt: the path of a node, a key and its revision. All methods are called
// concurrently, and for one attempt in this order: Prepare, Enter, any number of Look, Refill and Share, Ended, any number of Drop.
// A Look, Refill or Share can still be under way when Ended is called.
type Driver[W any] interface {
	// Prepare sets the Lane of an attempt, and how long its grants and leases last, before anybody else knows of it. It may wait, within
	// ctx, for a session. It returns an error for a request that the service does not take: a TTL, a limit, a key.
	Prepare(ctx context.Context, a *Attempt[W]) error

	// Enter makes the request: it releases prev, which may be empty, and asks for the lock, in one step if the service can. It may repeat
	// what was not answered if that has one effect. ctx is the caller's, who may wait for ever: so Enter has to return by itself, after about
	// the attempt's Window, when the service is silent.
	//
	// After an error the Backend drops the attempt, and prev unless it is settled: whatever comes of a request later, Drop has to remove.
	Enter(ctx context.Context, a *Attempt[W], prev *Prev[W]) (Standing, error)

	// Look asks how attempts of one lane stand that wait or hold, and calls Stands or Gone of each that was answered. The Backend looks
	// again at the others. There is one Look at a time for an attempt.
	Look(ctx context.Context, some []*Attempt[W])

	// Drop removes all that the service has of these attempts of one lane, and what a request that was not answered may still bring.
	// It calls Dropped of each that was answered or may have been carried out, and DropRefused of each that was refused. The Backend repeats
	// those that are not over: with the lane's next Drop, which Lane.Retry begins at the latest.
	Drop(ctx context.Context, some []*Attempt[W])

	// Refill reserves fences for a lease that is held. ErrLeaseLost: it is not.
	Refill(ctx context.Context, a *Attempt[W]) (Block, error)

	// Share makes an exclusive lease a shared one and returns its one fence, and when to look. ErrLeaseLost: it is not held.
	Share(ctx context.Context, a *Attempt[W]) (Standing, error)

	// Ended is called once, when the attempt neither waits nor holds any more: its watches can go. It must not block.
	Ended(a *Attempt[W])

	// Close ends the sessions. What is to be dropped has been queued by then, and Lane.Flush waits for it.
	Close()
}

// Renewer is a Driver whose leases are renewed one by one: its lanes have no Session.
type Renewer[W any] interface {
	Driver[W]
	// Renew has leases of one lane last for Lasts from now, and calls Renewed or Gone of each that was answered, and Unrenewed of those
	// whose renewal has failed. The Backend asks again for all that were not answered. The first renewal is the claim of a grant, which before it lasts for its Window.
	Renew(ctx context.Context, due []*Attempt[W])
	// ClaimTime is how long a claim may take: a grant of which less is left is claimed before anybody gets it.
	ClaimTime(a *Attempt[W]) time.Duration
}

// Claimer is a Renewer that claims each grant of an Enter before anybody gets it, however much time is left of it.
type Claimer[W any] interface {
	Renewer[W]
	// Claim is the first Renew of a grant. It repeats what was not answered, for so long at most, and returns when it sent the question that was
	// answered. ErrLeaseLost: nothing is there to claim. After another error the Backend drops the attempt. Of a grant that was delivered to a place
	// the error is lost, and the place with it: the next Enter may return it.
	Claim(ctx context.Context, a *Attempt[W], most time.Duration) (sent time.Time, err error)
}

// Session keeps all leases of a lane alive. Its methods are called at every turn and must not block.
type Session interface {
	// Until is the time up to which the session lives at least, by the clocks of this machine (rule K4).
	Until() time.Time
	// Healthy reports that the service has not been silent for too long.
	Healthy(now time.Time) bool
	// Fault is why the service has not vouched for it lately, and Is ErrUnavailable. nil: it has, or the reason is not known.
	Fault() error
	// Patience is how long the answer to a Drop is waited for.
	Patience() time.Duration
}

// ErrOver says that the session of a request has ended, and that nothing of the request is left. A Driver wraps it.
var ErrOver = distributed.Unavailable("", keyless.Errorf("the session has ended"))

// Standing is what the service has said of an attempt.
type Standing struct {
	Kind      Kind
	Sent      time.Time     // when the request was sent that this answers: a grant lasts from then on (rule K4). Zero: it was pushed
	Pushed    bool          // of a grant, as of a message: it may come so late that the lock has been granted again. Then the Backend looks, or gives up
	Fences    Block         // of a grant. Of a Shared one without a Limit the First counts alone
	Contended bool          // of a grant and of a lease: another instance waits
	Wanted    bool          // of a grant: another instance was refused the lock, and does not wait. Or it could not say so
	Holder    string        // whom the attempt waits for, or who refused it. "": not known
	Next      time.Duration // when to look again without an event. 0: after the usual time. Or Never
	RenewIn   time.Duration // of a Renewer's grant: when to renew it first, for a driver whose renewals look. 0: when a third of its window has passed

	claimed bool // a grant was
}

// Kind is how an attempt stands.
type Kind uint8

const (
	Refused Kind = iota // a request with NoWait or a QueueMost, of which nothing is left
	Queued
	Granted // now, or still
)

const (
	// Never as Standing.Next plans no look: an event will tell.
	Never time.Duration = -1
	// Now as Standing.Next has the Backend look at once.
	Now time.Duration = 1
)

// Block are fences: First and the Count-1 after it.
type Block struct{ First, Count uint64 }

// Outcome is what a removal has found.
type Outcome uint8

const (
	Unknown Outcome = iota // not answered: it may have been carried out
	Removed
	Missing // it was not there: lost, or removed by an earlier try, or by an Enter
	Lost    // it was not there, and no try had removed it
)

// Settings are what a Driver wants of its Backend.
type Settings struct {
	Name      string // begins errors: "etcdlock"
	Grid      int    // points in H at which looks without an event gather. 0: they do not
	LookMost  int    // attempts in one Look
	Looks     int    // calls of Look under way in a lane: what is to be looked at meanwhile shares the next. 0: many, as each event has its own
	DropMost  int    // attempts in one Drop
	Drops     int    // calls of Drop under way in a lane, beside those of DropsHere
	DropsHere int    // a Release calls Drop on its own goroutine, which spares it two switches, if fewer are dropped: Drop has to obey its ctx
	Tells     bool   // a request that is refused sends word to the holder, for which Attempt.Wanted is called at once
	Counts    bool   // an Enter obeys Request.QueueMost
	Twice     bool   // a Drop may be under way beside an Enter with the same prev: the service tells which came first

	// Pause is before the next Drop of what was refused or not answered for the so-manieth time, until that has expired. nil: Lane.Retry
	// says when.
	Pause func(tries int) time.Duration

	// Apart runs an Enter on another goroutine, which Close waits for, so that its caller can go while it is under way. It reports false
	// when the Backend is closed. Enter obeys ctx only where it has sent nothing. A Drop of the lease before that was under way was
	// answered before Prepare. One that cannot return in time calls Overdue. There are no Sessions. nil: it runs on the caller's.
	Apart func(enter func()) bool
}
