package redislimit

import (
	"context"
	_ "embed"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed charge.lua
var chargeText string

// chargeMark is the line of charge.lua that redis_rate's script replaces.
const chargeMark = "-- here: redis_rate's script\n"

// charging is the client that redis_rate sees for one request. It sends redis_rate's script inside charge.lua, so that all of a
// charge is one step, and puts keys in place of redis_rate's own, whose prefix is fixed.
type charging struct {
	redis.UniversalClient
	script func(charge string) *redis.Script
	run    runner
	keys   []string      // of the identity's state and, if the request has an id, of its note
	memory time.Duration // of the note
}

// runner is Run or Eval of a redis.Script.
type runner func(s *redis.Script, ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

// EvalSha asks for the script's text, which redis_rate then passes to Eval. It sends nothing.
func (c charging) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redis.ErrNoScript)
	return cmd
}

// Eval runs charge.lua around the script.
func (c charging) Eval(ctx context.Context, charge string, _ []string, args ...any) *redis.Cmd {
	return c.run(c.script(charge), ctx, c.UniversalClient, c.keys, append(args, c.memory.Milliseconds())...)
}

// around puts charge.lua around redis_rate's script, which is always the same.
func (l *Limiter) around(charge string) *redis.Script {
	l.once.Do(func() { l.script = redis.NewScript(strings.Replace(chargeText, chargeMark, charge, 1)) })
	return l.script
}
