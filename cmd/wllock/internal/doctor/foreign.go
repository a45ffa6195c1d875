package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/internal/nametext"
)

const (
	// scanPage is what one SCAN looks at, and scanPages how many there are: the server answers nobody else during each.
	scanPage, scanPages = 1000, 100
	// ours starts the value of every lock, and the name of every helper key.
	ours = "wllock:"
	// ListRights are the rights to list locks and to look at their keys: locks do not need them, and by default the user has none.
	ListRights = "+scan +getrange"
	// foreignShown is how many keys a finding names.
	foreignShown = 3
)

// redisForeign looks for values of others in the keys of this system's locks, such as a cache keeps there: a lock whose key is
// taken waits until it is free, and is lost when its key is overwritten.
func (p *patient) redisForeign(ctx context.Context, c *redis.Client) {
	match, known := locksOf(p.settings)
	if !known {
		return
	}
	var foreign []string
	looked, cursor := 0, uint64(0)
	for range scanPages {
		keys, next, err := c.Scan(ctx, cursor, match, scanPage).Result()
		if err == nil {
			err = p.foreignAmong(ctx, c, keys, &foreign)
		}
		if err != nil {
			p.fine("lock keys", "not looked at: %v. This and wllock ls and top take redis-cli ACL SETUSER %s %s", err, p.user(), ListRights)
			return
		}
		looked += scanPage
		if cursor = next; cursor == 0 {
			break
		}
	}
	what := fmt.Sprintf("no value of others in the locks' keys, %s", match)
	if cursor != 0 {
		what += fmt.Sprintf(", among the first %d keys of the server", looked)
	}
	if len(foreign) > 0 {
		what = fmt.Sprintf("keys like %s whose values are not wllock's: %d, among them %s", match, len(foreign),
			strings.Join(foreign[:min(len(foreign), foreignShown)], "; "))
	}
	p.judge(len(foreign) > 0, Warning, Finding{
		Subject: "lock keys", What: what,
		Means: "a lock with such a key waits until it is free; who overwrites or deletes a lock's key takes the lock away",
		Mend:  "another WLLOCK_SYSTEM_NAME in all services, with which no key of the application begins, or a database for locks alone",
	})
}

// locksOf returns the pattern that SCAN finds the keys of a system's locks by; false: they do not begin alike.
func locksOf(settings config.Config) (match string, known bool) {
	literal := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(string(settings.RedisKey))
	match = config.KeyPattern(literal).Key(settings.SystemName + ":*:*")
	return match, !strings.HasPrefix(match, "*")
}

// foreignAmong adds the keys whose values are not wllock's. Beside clients of other libraries, for which the pattern or the gap is
// set, what expires is their lock.
func (p *patient) foreignAmong(ctx context.Context, c *redis.Client, keys []string, foreign *[]string) error {
	if len(keys) == 0 {
		return nil
	}
	redact, err := p.settings.KeyRedaction()
	if err != nil {
		return err
	}
	beside := p.settings.RedisKey != config.Default().RedisKey || p.settings.RedisInteropGap > 0
	values, left := make([]*redis.StringCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	_, _ = c.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each command has its own error
		for i, key := range keys {
			values[i], left[i] = pipe.GetRange(ctx, key, 0, int64(len(ours)-1)), pipe.PTTL(ctx, key)
		}
		return nil
	})
	for i, key := range keys {
		value, err := values[i].Result()
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return err
		}
		ttl, err := left[i].Result()
		switch {
		case err != nil:
			return err
		case ttl == noKey, value == ours, strings.HasPrefix(key, ours), beside && ttl > 0:
			continue
		case ttl > 0:
			*foreign = append(*foreign, fmt.Sprintf("%s, which expires in %v", nametext.Quote(show.Redacted(key, redact)), ttl.Round(time.Second)))
		default:
			*foreign = append(*foreign, nametext.Quote(show.Redacted(key, redact))+", which never expires")
		}
	}
	return nil
}

// noKey is PTTL's answer for a key that has gone.
const noKey = time.Duration(-2)
