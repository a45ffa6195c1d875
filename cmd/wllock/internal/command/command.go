// Package command is the command line of wllock: its commands, their flags, and what they exit with.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/wllock/wllock/cmd/wllock/internal/child"
	"github.com/wllock/wllock/cmd/wllock/internal/show"
)

// Exit codes, those of sysexits.h where that has one.
const (
	ok          = 0
	no          = 1  // who: the lock is free; break: nothing was ended; give: nothing was released; doctor: warnings
	wrong       = 2  // doctor: errors
	usage       = 64 // the command line or the settings are wrong
	unavailable = 69 // the backend is
	lost        = 70 // run: the lease was lost, and the command was ended; take: it was lost; run --token: its lock is not there
	notAcquired = 75 // run, take: others have the lock; -E chooses another
)

// exit ends the program with a code; err is printed unless it is nil.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return fmt.Sprint(e.err) }
func (e *exit) Unwrap() error { return e.err }

func usageError(format string, args ...any) error { return &exit{usage, fmt.Errorf(format, args...)} }

// app is one run of the program.
type app struct {
	in       *os.File
	out, err io.Writer
	redact   func(key string) string // nil: keys are printed
	showKeys bool                    // although there is redact
	dashed   bool                    // the command line has a --
	after    []string                // what is behind that
	environ  []string                // for a command that is run
	flush    func()                  // if not nil: waits a moment until err has been written
	diesBy   os.Signal               // if not nil: the program dies by it, and the code is what shells make of that
}

// Main runs a command line and returns its exit code.
func Main(args []string) int {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ()}
	a.hearLibraries()
	cli.HelpPrinterCustom = wrapped
	if err := child.Become(args); err != nil {
		return a.ended(refusal(err))
	}
	child.Ignore()
	code := a.main(context.Background(), args)
	if a.diesBy != nil {
		child.Die(a.diesBy)
	}
	return code
}

// completing is the last argument when a shell asks for words.
const completing = "--generate-shell-completion"

func (a *app) main(ctx context.Context, args []string) int {
	if at := slices.Index(args, "--"); at >= 0 {
		if args[len(args)-1] == completing { // of the words of another command, which is not run for that
			return ok
		}
		args, a.after, a.dashed = args[:at], args[at+1:], true
	}
	return a.ended(a.commands().Run(ctx, args))
}

// ended says why a run of the program ends, and returns its exit code.
func (a *app) ended(err error) int {
	if err == nil {
		return ok
	}
	e, known := errors.AsType[*exit](err)
	if !known { // of the cli library: what it does not know
		e = &exit{usage, err}
	}
	if e.err != nil {
		a.say("%s", strings.TrimPrefix(e.err.Error(), "wllock: "))
	}
	if a.flush != nil {
		a.flush()
	}
	return e.code
}

// say tells a person something. A server's words may be in it.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.err, "wllock: "+show.Lines(fmt.Sprintf(format, args...)))
}

// rest are the arguments of a command that runs no other one.
func (a *app) rest(c *cli.Command) []string { return append(c.Args().Slice(), a.after...) }

func (a *app) commands() *cli.Command {
	root := &cli.Command{
		Name: "wllock", Usage: "locks for a fleet: run commands under them, see who holds them, end them",
		Description: description, Version: version(), Suggest: true,
		EnableShellCompletion: true,
		ConfigureShellCompletionCommand: func(c *cli.Command) {
			c.Hidden, c.Usage = false, "print a completion script: bash, zsh, fish, pwsh"
		},
		Writer: a.out, ErrWriter: a.err, ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "backend", Usage: "`URL` of the lock service (default: $WLLOCK_BACKEND)"},
			&cli.StringFlag{Name: "system", Usage: "first part of the locks' `NAME`s (default: $WLLOCK_SYSTEM_NAME)"},
			&cli.DurationFlag{Name: "timeout", Usage: "for the backend's answer", Value: 10 * time.Second},
		},
		Commands: []*cli.Command{a.run(), a.take(), a.give(), a.who(), a.ls(), a.jobs(), a.top(), a.serve(), a.breaks(), a.doctor(), a.migrate(), a.man()},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Len() > 0 {
				return usageError("there is no command %q: see wllock help", c.Args().First())
			}
			return cli.ShowRootCommandHelp(c)
		},
	}
	for _, c := range append(root.Commands, root) {
		c.Description = lineBreak.ReplaceAllString(c.Description, "$1 $2")
		c.OnUsageError = func(_ context.Context, c *cli.Command, err error, _ bool) error {
			return usageError("%w: see wllock help %s", err, strings.TrimPrefix(strings.TrimPrefix(c.FullName(), "wllock"), " "))
		}
	}
	return root
}

const description = `A lock's full name is SYSTEM:NAME:KEY. The backend and all other settings come from the variables that
services use as well: WLLOCK_BACKEND, WLLOCK_SYSTEM_NAME, WLLOCK_LEASE_TTL and so on. A password in --backend is
visible to all users of the machine; in a variable or in a file (WLLOCK_REDIS_PASSWORD_FILE) it is not.

Backends: redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, redlock://, zk://, zks://, etcd://, postgres://,
mysql://, sqlite://, memcached://.`
