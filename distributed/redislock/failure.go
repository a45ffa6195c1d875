package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
)

// failure sorts the errors of a client by what they say about the step that was asked for.
type failure uint8

const (
	none      failure = iota
	passing           // not done or not known; asking again helps sooner or later
	permanent         // refused; asking again does not help
)

// permanentPrefixes start the answers of a server that will not change by themselves. Everything else that a server
// or network says (LOADING, BUSY, READONLY, MASTERDOWN, CLUSTERDOWN, NOREPLICAS, MISCONF, time-outs, resets) passes.
var permanentPrefixes = []string{"OOM", "NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "CROSSSLOT", "ERR "}

func classify(err error) failure {
	if err == nil {
		return none
	}
	var no refused
	if errors.As(err, &no) || errors.Is(err, redis.ErrClosed) {
		return permanent
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return passing
	}
	text := answer.Error()
	if strings.HasPrefix(text, "ERR max number of clients") {
		return passing
	}
	for _, p := range permanentPrefixes {
		if strings.HasPrefix(text, p) {
			return permanent
		}
	}
	return passing
}

// unavailable wraps what the client said. Errors of go-redis name addresses and commands, never credentials.
func unavailable(doing string, err error) error {
	return fmt.Errorf("redislock: %s: %w: %w", doing, distributed.ErrUnavailable, explained(err))
}

// explained adds the missing ACL rule to a refusal.
func explained(err error) error {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return err
	}
	text := answer.Error()
	switch {
	case strings.Contains(text, "channel"):
		return fmt.Errorf("the user lacks the ACL rule &%s*: %w", prefix, err)
	case strings.Contains(text, "NOPERM") && strings.Contains(text, "key"):
		return fmt.Errorf("the user lacks an ACL rule ~pattern for the lock's key or ~%s* for its helper keys: %w", prefix, err)
	default:
		return err
	}
}

// interrupted is the error of a step whose caller's context has ended. If that was a deadline, the server did not
// answer in time, which is worth saying too.
func interrupted(ctx context.Context, c *call, why error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("redislock: %s: %w", c.script.name, ctx.Err())
	case errors.Is(why, ctx.Err()):
		return fmt.Errorf("redislock: %s: %w: %w", c.script.name, distributed.ErrUnavailable, why)
	}
	return fmt.Errorf("redislock: %s: %w: %w: %w", c.script.name, distributed.ErrUnavailable, ctx.Err(), explained(why))
}

// telling returns which of two errors of one question, the later one second, says more: the server's own words why, then
// what became of the connection, and least that time was over.
func telling(before, now error) error {
	var answer redis.Error
	switch {
	case before == nil, errors.As(now, &answer):
		return now
	case errors.As(before, &answer), errors.Is(now, context.DeadlineExceeded):
		return before
	}
	return now
}
