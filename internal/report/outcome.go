package report

// Outcome is the reason of a refusal, for counters and attributes of metrics: a fixed few, so that they stay countable.
type Outcome uint8

// The outcomes.
const (
	QueueFull Outcome = iota
	Unavailable
	TimedOut
	Busy
	Closed
	LeaseLost
	PastDeadline // the caller's own
	Canceled
	Other
)

var outcomes = [...]string{"queue_full", "unavailable", "wait_timeout", "held", "closed", "lease_lost", "deadline_exceeded", "canceled", "other"}

func (o Outcome) String() string { return outcomes[o] }
