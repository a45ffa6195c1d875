package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
)

const (
	// oldestMajor is the first version of Redis with flags in scripts. Valkey began with 7.2.
	oldestMajor = 7
	// pings are sent to find the shortest round trip.
	pings = 3
	// hearWait is how long a probe waits to learn whether the subscription is allowed. Without an outcome by then the
	// backend works on, by heartbeats.
	hearWait = time.Second
	// firstBudget is given to the first use, which takes half a dozen exchanges and as many more to connect.
	firstBudget = time.Second
	// pingBudget bounds a Ping whose context has no end.
	pingBudget = 5 * time.Second
)

// Ping implements distributed.Backend. The error names what is wrong: a missing ACL rule, a server that is too old.
func (b *Backend) Ping(ctx context.Context) error {
	if b.isClosed() {
		return distributed.ErrClosed
	}
	return b.prove(ctx, pingBudget)
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// prove probes the server until it has answered or the budget is spent. One caller probes at a time; the others wait
// for it and, at the first use, take its result.
func (b *Backend) prove(ctx context.Context, budget time.Duration) error {
	first := !b.proven.Load()
	end := time.Now().Add(budget)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	select {
	case b.probes <- struct{}{}:
		defer func() { <-b.probes }()
	case <-ctx.Done():
		return fmt.Errorf("redislock: probe: %w: %w", distributed.ErrUnavailable, ctx.Err())
	}
	if first && b.proven.Load() {
		return nil
	}
	var why error
	var tag string
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		tag = b.tr.elsewhere(ctx, tag)
		err := b.probeAt(ctx, tag, budget/2)
		if err == nil {
			b.proven.Store(true)
			return nil
		}
		if b.ctx.Err() != nil {
			return distributed.ErrClosed
		}
		why = telling(why, err)
		if ctx.Err() != nil && !errors.Is(why, ctx.Err()) {
			why = fmt.Errorf("%w: %w", ctx.Err(), why)
		}
		if ctx.Err() != nil || classify(err) == permanent {
			return unavailable("probe", why)
		}
		b.pause(ctx, jittered(pause))
	}
}

// probeAt probes for no longer than limit if there are other servers to try.
func (b *Backend) probeAt(ctx context.Context, tag string, limit time.Duration) error {
	if b.tr.node(ctx, tag) != "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return b.probe(ctx, tag)
}

// probe asks the server that has the tag everything that could keep us from working, so that it is known at the start.
func (b *Backend) probe(ctx context.Context, tag string) error {
	if b.isClosed() {
		return distributed.ErrClosed
	}
	b.ear.open()
	shortest, err := b.roundTrip(ctx, tag)
	if err != nil {
		return err
	}
	info, err := b.tr.about(ctx, tag)
	if err != nil {
		return err
	}
	if err = b.fit(info); err != nil {
		return err
	}
	c := newCall(probeScript, []string{prefix + "{" + tag + "}:" + b.process}, prefix+b.process)
	b.tr.do(ctx, c)
	if c.err != nil {
		return c.err
	}
	if err = refusals(c.reply); err != nil {
		return err
	}
	if err = b.ear.allowed(ctx); err != nil {
		return err
	}
	b.single.Store(info.single)
	b.rtt.Store(int64(shortest))
	return nil
}

func (b *Backend) roundTrip(ctx context.Context, tag string) (time.Duration, error) {
	shortest := time.Duration(1<<63 - 1)
	for range pings {
		d, err := b.tr.ping(ctx, tag)
		if err != nil {
			return 0, err
		}
		shortest = min(shortest, d)
	}
	return shortest, nil
}

// refused is a failure that stays until somebody changes the server or its settings.
type refused struct{ error }

// fit judges what the server says of itself. A policy that can evict locks is warned of once: with memory to spare it
// does no harm.
func (b *Backend) fit(info serverInfo) error {
	if major, err := strconv.Atoi(strings.SplitN(info.version, ".", 2)[0]); err == nil && major < oldestMajor {
		return refused{fmt.Errorf("the server is too old: version %s, needed is %d.0", info.version, oldestMajor)}
	}
	if info.policy != "" && info.policy != "noeviction" && info.memory != "0" && !b.proven.Load() {
		b.settings.log.Warn("redislock: the server may evict locks when its memory is full; set maxmemory-policy noeviction",
			"maxmemory-policy", info.policy)
	}
	return nil
}

// refusals turns the answer of the probe script into an error that names the missing ACL rules.
func refusals(reply string) error {
	var rules []string
	var why string
	for line := range strings.Lines(reply) {
		command, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		rule := "+" + strings.ToLower(command)
		switch {
		case strings.Contains(text, "channel"):
			rule = "&" + prefix + "*"
		case strings.Contains(text, "key"):
			rule = "~" + prefix + "*"
		}
		if len(rules) == 0 || rules[len(rules)-1] != rule {
			rules = append(rules, rule)
		}
		why = text
	}
	if len(rules) == 0 {
		return nil
	}
	return refused{fmt.Errorf("the user lacks the ACL rules %s (%s)", strings.Join(rules, " "), why)}
}

// allowed waits for the first outcome of the subscription and returns its error if the server has refused it. One
// that merely broke comes back by itself.
func (e *ear) allowed(ctx context.Context) error {
	t := time.NewTimer(hearWait)
	defer t.Stop()
	select {
	case <-e.known:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := e.failure()
	if classify(err) != permanent {
		return nil
	}
	return err
}

// fastEnough checks that a queued instance can be granted the lock, hear of it at its next heartbeat, and claim it in
// its claim window: H + drift + 2 round trips < W.
func (b *Backend) fastEnough(ttl time.Duration) error {
	window, rtt := distributed.ClaimWindow(ttl), time.Duration(b.rtt.Load())
	if distributed.HeartbeatInterval(ttl)+distributed.Drift(window)+2*rtt < window {
		return nil
	}
	return fmt.Errorf("redislock: %w: %w", distributed.ErrUnavailable,
		errors.New("a lease TTL of "+ttl.String()+" is too short for round trips of "+rtt.String()))
}
