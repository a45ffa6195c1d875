package redislock

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/keyless"
)

const (
	// oldestMajor is the first version of Redis with flags in scripts. Valkey began with 7.2.
	oldestMajor = 7
	// firstBudget bounds the first use with a short TTL: it takes two round trips, and as many more to connect.
	firstBudget = time.Second
	// nodeBudget bounds the probe of one node of a cluster, because another may answer.
	nodeBudget = 500 * time.Millisecond
	// lastWord is how long a question whose caller has gone may still say what it knows.
	lastWord = 20 * time.Millisecond
	// pingBudget bounds a Ping whose context has no end.
	pingBudget = 5 * time.Second
)

// Ping implements distributed.Backend. The error names what is wrong: a missing ACL rule, a server that is too old.
func (b *Backend) Ping(ctx context.Context) error {
	if b.client.Closed() {
		return distributed.ErrClosed
	}
	return b.prove(ctx, pingBudget, "")
}

// prove probes the server until it has answered or the budget is spent. One caller probes at a time; the others wait
// for it and, at the first use, share its result. The systems whose rights are tried are those of WithSystem, and the key's if there is one.
func (b *Backend) prove(ctx context.Context, budget time.Duration, key string) error {
	first := !b.isProven(key)
	end := time.Now().Add(budget)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	return b.apart(ctx, func() error {
		select {
		case b.probes <- struct{}{}:
			defer func() { <-b.probes }()
		case <-ctx.Done():
			return conn.Unavailable("", ctx.Err())
		}
		if first && b.isProven(key) {
			return nil
		}
		return b.proveNow(ctx, budget, key)
	})
}

// apart has ask run on a goroutine that Close waits for, and returns as soon as its caller has gone. A client that waits for an answer does
// not notice that, and before the first answer it may wait long.
func (b *Backend) apart(ctx context.Context, ask func() error) error {
	answered := make(chan error, 1)
	if !b.client.Go(func() { answered <- ask() }) {
		return distributed.ErrClosed
	}
	gone := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // which ask obeys by itself, and then says why there was no answer
			close(gone)
		}
	})
	defer stop()
	select {
	case err := <-answered:
		return err
	case <-gone:
	}
	select {
	case err := <-answered: // unless it waits for an answer it says why there was none before
		return err
	case <-time.After(lastWord):
		return conn.Unavailable("", ctx.Err())
	}
}

// proveNow probes one server after the other.
func (b *Backend) proveNow(ctx context.Context, budget time.Duration, key string) error {
	var why error
	var tag string
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		tag = b.s.tr.Elsewhere(ctx, tag)
		err := b.probeAt(ctx, tag, key, min(budget/2, nodeBudget+b.s.acks.Within))
		if err == nil {
			b.proven.Store(true)
			return nil
		}
		if b.s.ctx.Err() != nil {
			return distributed.ErrClosed
		}
		why = conn.MoreTelling(why, err)
		if ctx.Err() != nil {
			why = conn.Expired(ctx.Err(), why)
		}
		if ctx.Err() != nil || conn.Classify(err) == conn.Permanent {
			return conn.Unavailable("", why)
		}
		b.s.pause(ctx, jittered(pause))
	}
}

// probeAt probes for no longer than limit if there are other servers to try.
func (b *Backend) probeAt(ctx context.Context, tag, key string, limit time.Duration) error {
	if b.s.tr.Node(ctx, tag) != "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return b.probe(ctx, tag, key)
}

// probe asks the server that has the tag for everything that could keep us from working, so that it is known at the
// start: what it is, and beside that, in two more round trips at most, what it allows.
func (b *Backend) probe(ctx context.Context, tag, key string) error {
	if b.client.Closed() {
		return distributed.ErrClosed
	}
	b.sub.open()
	starts := b.startsWith(key)
	spaces := make([]*space, len(starts))
	for i, start := range starts {
		spaces[i] = b.s.spaces.of(systemOfStart(start), b.s.process)
	}
	var beside sync.WaitGroup
	var keysErr error
	beside.Go(func() { keysErr = b.tryKeys(ctx, tag, starts) })
	if !b.proven.Load() {
		beside.Go(func() { b.s.tr.Load(ctx, tag, allScripts...) }) // over a slow network a lease can be too short for another trip
	}
	err := b.about(ctx, tag)
	beside.Wait()
	if err == nil {
		err = keysErr
	}
	if err != nil {
		return err
	}
	for _, e := range spaces {
		if err := e.allowed(ctx); err != nil {
			return err
		}
		e.proven.Store(true)
	}
	return nil
}

// isProven reports that a probe has succeeded, and has tried the rights to the space of this key, if there is one.
func (b *Backend) isProven(key string) bool {
	return b.proven.Load() && (key == "" || b.s.space(key).proven.Load())
}

// startsWith is what the keys that a probe tries begin with: those of each system of WithSystem and their helper keys, and the helper
// keys of this key.
func (b *Backend) startsWith(key string) (all []string) {
	for _, start := range b.starts {
		all = append(all, start, conn.SpaceOf(conn.SystemOf(start)))
	}
	if space := conn.SpaceOf(conn.SystemOf(key)); key != "" && !slices.Contains(all, space) {
		all = append(all, space)
	}
	return all
}

// systemOfStart is the system of keys, or of helper keys, that begin so.
func systemOfStart(start string) string {
	if conn.IsHelper(start) {
		return conn.SystemIn(start)
	}
	return conn.SystemOf(start)
}

// about asks the server what it is, and measures the round trip on the connection that this took.
func (b *Backend) about(ctx context.Context, tag string) error {
	info, err := b.s.tr.About(ctx, tag)
	if err != nil {
		return closedAt("INFO", err)
	}
	if err = b.fit(info); err != nil {
		return err
	}
	b.s.single.Store(info.Single)
	return closedAt("PING", b.measure(ctx, tag))
}

// closedAt names the command at which the connection was closed. So does a proxy that lacks it.
func closedAt(command string, err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	return keyless.Errorf("the connection is closed at %s, as by a proxy that lacks it: %w", command, err)
}

// tryKeys tries every command on keys that begin so. Where no system is known yet it tries whether the server takes scripts that write.
func (b *Backend) tryKeys(ctx context.Context, tag string, starts []string) error {
	if len(starts) == 0 {
		c := conn.NewCall(readyScript, nil)
		c.Acked = b.s.acks.Replicas > 0
		b.s.tr.Do(ctx, c)
		return closedAt("EVALSHA", c.Err)
	}
	calls := make([]*conn.Call, len(starts))
	for i, start := range starts {
		calls[i] = b.s.probe(start, tag, systemOfStart(start))
		calls[i].Acked = b.s.acks.Replicas > 0
	}
	b.s.tr.Do(ctx, calls...)
	for i, c := range calls {
		if c.Err != nil {
			return lacksKey(starts[i], closedAt("EVALSHA", c.Err))
		}
		if err := missingRules(starts[i], readProbe(c.Reply)); err != nil {
			return err
		}
	}
	return nil
}

// lacksKey names the ACL rule for the keys that begin with start, if it is what the server missed.
func lacksKey(start string, err error) error {
	answer, ok := errors.AsType[redis.Error](err)
	if !ok || !strings.HasPrefix(answer.Error(), "NOPERM") || !strings.Contains(answer.Error(), "key") {
		return err
	}
	return conn.Refusal(keyless.Errorf("the user lacks the ACL rule ~%s*: %w", start, answer))
}

// fit judges what the server says about itself. A policy that can evict locks causes one warning: with memory to spare
// it does no harm.
func (b *Backend) fit(info conn.Info) error {
	if major, err := strconv.Atoi(strings.SplitN(info.Version, ".", 2)[0]); err == nil && major < oldestMajor {
		return conn.Refusal(keyless.Errorf("the server is too old: version %s, needed is %d.0", info.Version, oldestMajor))
	}
	if info.Policy != "" && info.Policy != "noeviction" && info.MaxMemory != "0" && !b.proven.Load() {
		b.s.log.Warn("redislock: the server may evict locks when its memory is full; set maxmemory-policy noeviction",
			"maxmemory-policy", info.Policy)
	}
	return nil
}

// missingRules turns the answer of the probe script, for keys that begin with start, into an error that names the missing
// ACL rules, or first the commands that the server does not have.
func missingRules(start string, refused []refusedCommand) error {
	var rules, missing []string
	for _, r := range refused {
		if strings.Contains(r.why, "Unknown Redis command") {
			missing = append(missing, r.command)
			continue
		}
		rule := "+" + strings.ToLower(r.command)
		switch {
		case strings.Contains(r.why, "channel"):
			rule = "&" + conn.SpaceOf(systemOfStart(start)) + "*"
		case strings.Contains(r.why, "key"):
			rule = "~" + start + "*"
		}
		if len(rules) == 0 || rules[len(rules)-1] != rule {
			rules = append(rules, rule)
		}
	}
	if len(missing) > 0 {
		return conn.Refusal(keyless.Errorf("the server lacks the commands %s, as after rename-command in redis.conf (%s)",
			strings.Join(missing, " "), refused[len(refused)-1].why))
	}
	if len(rules) == 0 {
		return nil
	}
	return conn.Refusal(keyless.Errorf("the user lacks the ACL rules %s (%s)", strings.Join(rules, " "), refused[len(refused)-1].why))
}
