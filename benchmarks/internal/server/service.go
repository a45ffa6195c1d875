package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Service is what locks are kept in: servers, or this process.
type Service interface {
	// Address returns those of all servers, separated by commas.
	Address() string
	// Version names the servers and their version; "": there are none.
	Version(ctx context.Context) (string, error)
	// Flush forgets all locks.
	Flush(ctx context.Context) error
	// Commands returns how often each command was called.
	Commands(ctx context.Context) (map[string]int64, error)
	// CPU returns the CPU time the servers have used.
	CPU() time.Duration
	Stop()
}

// Quorum are several redis-servers that know nothing of each other.
type Quorum []*Server

// StartQuorum starts n servers.
func StartQuorum(ctx context.Context, n int) (Quorum, error) {
	var q Quorum
	for range n {
		s, err := Start(ctx)
		if err != nil {
			q.Stop()
			return nil, err
		}
		q = append(q, s)
	}
	return q, nil
}

// Address implements Service.
func (q Quorum) Address() string {
	var all []string
	for _, s := range q {
		all = append(all, s.Addr)
	}
	return strings.Join(all, ",")
}

// Version implements Service.
func (q Quorum) Version(ctx context.Context) (string, error) {
	one, err := q[0].Version(ctx)
	return fmt.Sprintf("%d x %s", len(q), one), err
}

// Flush implements Service.
func (q Quorum) Flush(ctx context.Context) error {
	var errs []error
	for _, s := range q {
		errs = append(errs, s.Flush(ctx))
	}
	return errors.Join(errs...)
}

// Commands returns the sums over the servers.
func (q Quorum) Commands(ctx context.Context) (map[string]int64, error) {
	sum := make(map[string]int64)
	for _, s := range q {
		calls, err := s.Commands(ctx)
		if err != nil {
			return nil, err
		}
		for name, n := range calls {
			sum[name] += n
		}
	}
	return sum, nil
}

// Monitor watches one of the servers: all get the same commands.
func (q Quorum) Monitor(ctx context.Context, f func() error) (Seen, error) {
	return q[0].Monitor(ctx, f)
}

// CPU returns the sum over the servers.
func (q Quorum) CPU() time.Duration {
	var sum time.Duration
	for _, s := range q {
		sum += s.CPU()
	}
	return sum
}

// Stop implements Service.
func (q Quorum) Stop() {
	for _, s := range q {
		s.Stop()
	}
}

// Memory is no server: the locks are in this process, and each round has new ones.
type Memory struct{}

// Address implements Service.
func (Memory) Address() string { return "" }

// Version implements Service.
func (Memory) Version(context.Context) (string, error) { return "", nil }

// Flush implements Service.
func (Memory) Flush(context.Context) error { return nil }

// Commands implements Service.
func (Memory) Commands(context.Context) (map[string]int64, error) { return nil, nil }

// CPU implements Service.
func (Memory) CPU() time.Duration { return 0 }

// Stop implements Service.
func (Memory) Stop() {}
