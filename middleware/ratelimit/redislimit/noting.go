package redislimit

import (
	"context"
	_ "embed"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed noted.lua
var noted string

// chargeMark is the line of noted.lua that redis_rate's script replaces.
const chargeMark = "-- here: redis_rate's script\n"

// keyed is the client that redis_rate sees for one request. It puts key in place of redis_rate's own, whose prefix is fixed.
type keyed struct {
	redis.UniversalClient
	key string
}

// EvalSha charges the key.
func (k keyed) EvalSha(ctx context.Context, sha string, _ []string, args ...any) *redis.Cmd {
	return k.UniversalClient.EvalSha(ctx, sha, []string{k.key}, args...)
}

// Eval charges the key.
func (k keyed) Eval(ctx context.Context, script string, _ []string, args ...any) *redis.Cmd {
	return k.UniversalClient.Eval(ctx, script, []string{k.key}, args...)
}

// noting is keyed for a request with an id. It sends redis_rate's script inside noted.lua, so
// that the charge and the check of the note are one step.
type noting struct {
	keyed
	around func(charge string) *redis.Script
	note   string // its key
	memory time.Duration
}

// EvalSha asks for the script's text, which redis_rate then passes to Eval. It sends nothing.
func (n noting) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redis.ErrNoScript)
	return cmd
}

// Eval runs noted.lua around the script.
func (n noting) Eval(ctx context.Context, charge string, _ []string, args ...any) *redis.Cmd {
	return n.around(charge).Run(ctx, n.UniversalClient, []string{n.key, n.note}, append(args, n.memory.Milliseconds())...)
}

// around puts noted.lua around redis_rate's script, which is always the same.
func (l *Limiter) around(charge string) *redis.Script {
	l.once.Do(func() { l.script = redis.NewScript(strings.Replace(noted, chargeMark, charge, 1)) })
	return l.script
}
