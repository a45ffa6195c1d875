package redislimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/middleware/ratelimit"
)

// calm is how long no charge may fail until Redis counts again: some may still fail while others do not.
const calm = 10 * time.Second

var (
	away    = metric.WithAttributes(attribute.String("wllock.outcome", "away"))
	refused = metric.WithAttributes(attribute.String("wllock.outcome", "refused"))
)

// failures tells of charges that fail: it counts them, and writes a line when they begin and one when they are over.
type failures struct {
	log     *slog.Logger
	counter metric.Int64Counter

	told atomic.Bool // that charges fail. Written under mu

	mu          sync.Mutex // guards all below
	toldRefused bool
	first, last time.Time
	number      int64
}

// note takes the result of a charge.
func (f *failures) note(ctx context.Context, err error) {
	switch {
	case err != nil:
		f.failed(ctx, err)
	case f.told.Load():
		f.succeeded(ctx)
	}
}

func (f *failures) failed(ctx context.Context, err error) {
	refusal := errors.Is(err, ratelimit.ErrRefused)
	if refusal {
		f.counter.Add(ctx, 1, refused)
	} else {
		f.counter.Add(ctx, 1, away)
	}
	f.mu.Lock()
	f.last = time.Now()
	began, worse := !f.told.Load(), refusal && !f.toldRefused
	if began {
		f.first, f.number = f.last, 0
	}
	f.number++
	f.toldRefused = f.toldRefused || refusal
	f.told.Store(true)
	f.mu.Unlock()
	switch {
	case worse:
		f.log.LogAttrs(ctx, slog.LevelError, "redislimit: Redis refuses: requests are refused, too", slog.Any("error", err))
	case began:
		f.log.LogAttrs(ctx, slog.LevelWarn, "redislimit: Redis is away: requests are not counted", slog.Any("error", err))
	}
}

func (f *failures) succeeded(ctx context.Context) {
	f.mu.Lock()
	over := f.told.Load() && time.Since(f.last) >= calm
	if over {
		f.told.Store(false)
		f.toldRefused = false
	}
	lasted, number := f.last.Sub(f.first), f.number
	f.mu.Unlock()
	if over {
		f.log.LogAttrs(ctx, slog.LevelInfo, "redislimit: Redis counts again", slog.Duration("lasted", lasted), slog.Int64("not_counted", number))
	}
}

// sorted makes an error ErrRefused if it stays until the server or the client is changed, and says what to change. Redis
// without memory is none: its keys expire.
func (l *Limiter) sorted(doing string, err error) error {
	if conn.Classify(err) != conn.Permanent || redis.HasErrorPrefix(err, "OOM") {
		return fmt.Errorf("redislimit: %s: %w", doing, err)
	}
	mend := ""
	switch text := err.Error(); {
	case strings.Contains(text, "replicate_commands"):
		mend = "the server is too old, needed is Redis 5: "
	case lacksRule.MatchString(text):
		mend = "the user needs the ACL rules ~" + l.prefix + "* +evalsha +eval +time +get +set +del, and in a cluster +cluster|slots: "
	}
	return fmt.Errorf("redislimit: %s: %w: %s%w", doing, ratelimit.ErrRefused, mend, err)
}

// lacksRule is what versions of Redis say of a command, and of one in a script, whose name they may leave out.
var lacksRule = regexp.MustCompile(`NOPERM|user executing the script|ACL failure in script`)
