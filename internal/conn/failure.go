package conn

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// Failure sorts the errors of a client by what they say about the step that was asked for.
type Failure uint8

const (
	None      Failure = iota
	Transient         // not done, or not known. A repeat helps sooner or later
	Permanent         // refused. A repeat does not help
)

// permanentPrefixes start the answers of a server that will not change by themselves. Everything else that a server
// or network says (LOADING, BUSY, READONLY, MASTERDOWN, CLUSTERDOWN, NOREPLICAS, MISCONF, time-outs, resets) passes.
var permanentPrefixes = []string{"OOM", "NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "CROSSSLOT", "ERR "}

// refusal is a failure that stays until somebody changes the server or its settings.
type refusal struct{ error }

// Is makes it an ErrRefused.
func (refusal) Is(target error) bool { return target == distributed.ErrRefused }

// refused is an answer of the server that was no reply.
type refused struct{ error }

func (r refused) Unwrap() error      { return r.error }
func (refused) Is(target error) bool { return target == distributed.ErrRefused }

// unsent is the end of a context before there was a connection.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// unreached is the error of a dial.
type unreached struct{ error }

func (u unreached) Unwrap() error      { return u.error }
func (unreached) Is(target error) bool { return target == distributed.ErrUnreached }

// Keyless implements keyless.Error.
func (r refusal) Keyless() (text string, safe bool) { return keyless.Text(r.error) }

// Refusal makes an error Permanent.
func Refusal(err error) error { return refusal{err} }

// Classify says what an error means.
func Classify(err error) Failure {
	if err == nil {
		return None
	}
	if errors.As(err, new(refusal)) || Unacked(err) || errors.Is(err, redis.ErrClosed) {
		return Permanent
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return Transient
	}
	text := answer.Error()
	if strings.HasPrefix(text, "ERR max number of clients") {
		return Transient
	}
	for _, p := range permanentPrefixes {
		if strings.HasPrefix(text, p) {
			return Permanent
		}
	}
	return Transient
}

// Moving reports that a call was answered TRYAGAIN and nothing was done: its slot is being moved to another node.
func Moving(err error) bool { return err != nil && redis.HasErrorPrefix(err, "TRYAGAIN") }

// Answered reports that the server has answered, if only with an error.
func Answered(err error) bool {
	if err == nil {
		return true
	}
	var answer redis.Error
	return errors.As(err, &answer)
}

// Unavailable wraps what the client said, as ErrRefused if the server has said it. Errors of go-redis name addresses and
// commands, never credentials.
func Unavailable(doing string, err error) error {
	where := "redis"
	if doing != "" {
		where += ": " + doing
	}
	return distributed.Unavailable(where, sorted(err))
}

func sorted(err error) error {
	if err != nil && Answered(err) {
		return refused{err}
	}
	return err
}

// Interrupted is the error of a call whose caller's context has ended. why is what happened before: after a deadline it
// says why the server did not answer in time.
func Interrupted(ctx context.Context, c *Call, why error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return keyless.Errorf("redis: %s: %w", c.Script.Name, ctx.Err())
	case errors.Is(why, ctx.Err()):
		return Unavailable(c.Script.Name, why)
	}
	return Unavailable(c.Script.Name, Expired(ctx.Err(), why))
}

// Expired is why something failed for as long as there was time: its text is why, and it Is the end of that time as well.
func Expired(end, why error) error {
	if why == nil || errors.Is(why, end) {
		return why
	}
	return expired{why, end}
}

type expired struct {
	error
	end error
}

// Unwrap returns both.
func (e expired) Unwrap() []error { return []error{e.error, e.end} }

// MoreTelling returns which of two errors of one request, the later one second, says more. The server's own words say most,
// then what became of the connection, and least that the time has expired or the caller has left. It is no ErrUnreached if one
// of the two may have been done.
func MoreTelling(before, now error) error {
	if before == nil {
		return now
	}
	if MayBeDone(before) || MayBeDone(now) {
		before, now = sent(before), sent(now)
	}
	var answer redis.Error
	switch {
	case errors.As(now, &answer):
		return now
	case errors.As(before, &answer), errors.Is(now, context.DeadlineExceeded), errors.Is(now, context.Canceled):
		return before
	}
	return now
}

// MayBeDone reports that the server may have done what failed with this error.
func MayBeDone(err error) bool {
	return !Answered(err) && !errors.Is(err, distributed.ErrUnreached) && !errors.As(err, new(unsent))
}

// sent is err without ErrUnreached.
func sent(err error) error {
	var u unreached
	if errors.As(err, &u) {
		return u.error
	}
	return err
}

// lacksCommand reports that the server does not have a command, as after rename-command in redis.conf. Of one in a script it does
// not say the name.
func lacksCommand(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && lackedCommand.MatchString(answer.Error())
}

var lackedCommand = regexp.MustCompile(`^ERR (unknown command|Unknown Redis command called from script)`)

// codeOf is the first word of an answer, if it is a code of Redis: it says what kind of error the rest of the text is about.
func codeOf(answer string) string {
	code, _, _ := strings.Cut(answer, " ")
	switch code {
	case "ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "ERR", "EXECABORT", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH", "NOPERM",
		"NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "UNKILLABLE", "WRONGPASS", "WRONGTYPE":
		return code
	}
	return "an error of the server"
}

// explained says what to do about an answer: the missing ACL rule, for example; prefix is the Config's, key what was asked for.
func explained(prefix func(key string) string, key string, err error) error {
	if err == nil {
		return nil // before answer is allocated
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return err
	}
	text := answer.Error()
	err = keyless.Known(err, codeOf(text))
	switch {
	case strings.HasPrefix(text, "MOVED ") && strings.Contains(text, " :"):
		return keyless.Errorf("the cluster gives its nodes no host: see cluster-announce-ip and cluster-preferred-endpoint-type: %w", err)
	case strings.HasPrefix(text, "MOVED "):
		return keyless.Errorf("the key belongs to another node of a cluster: open it as one (redis+cluster://): %w", err)
	case strings.HasPrefix(text, "READONLY"):
		return keyless.Errorf("the server is a replica, and locks need the primary: %w", err)
	case strings.Contains(text, "channel"):
		return keyless.Known(fmt.Errorf("the user lacks the ACL rule &%s*: %w", prefix(key), err), "the user lacks the ACL rule for the channel of the system")
	case strings.Contains(text, "NOPERM") && strings.Contains(text, "key"):
		return keyless.Known(fmt.Errorf("the user lacks an ACL rule ~pattern for the lock's key or ~%s* for its helper keys: %w", prefix(key), err),
			"the user lacks an ACL rule ~pattern for the lock's key or for its helper keys")
	case strings.Contains(text, "called from script"):
		return keyless.Errorf("the server lacks a command that scripts need, as after rename-command in redis.conf: %w", err)
	default:
		return err
	}
}
