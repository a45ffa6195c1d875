package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/cmd/wllock/internal/child"
	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/identity"
)

const (
	keyVariable   = "WLLOCK_LOCK_KEY"
	fenceVariable = "WLLOCK_LOCK_FENCE"
	pidVariable   = "WLLOCK_LOCK_PID"
	otherUser     = "a command of another user takes no signals from this one: let sudo run wllock, not wllock sudo"
	// releaseWait bounds the wait for the backend's answer to the release: it goes on expiring without one.
	releaseWait = 5 * time.Second
	// signalRoom is more signals than arrive while one is passed on.
	signalRoom = 16
)

func (a *app) run() *cli.Command {
	return &cli.Command{
		Name: "run", Usage: "run a command under a lock", ArgsUsage: "NAME KEY [-- COMMAND [ARGUMENT...]]", Description: runDescription,
		Flags: append(waitFlags(),
			&cli.StringFlag{Name: "token", Usage: "use the lock that wllock take has taken, instead of NAME KEY; - reads `TOKEN` from the standard input"},
			&cli.BoolFlag{Name: "s", Aliases: []string{"shared"}, Usage: "take a read lock, which other readers share"},
			&cli.IntFlag{Name: "permits", HideDefault: true, Usage: "be one of `N` holders at a time; all callers must give the same number"},
			&cli.DurationFlag{Name: "hold-at-least", HideDefault: true, Usage: "keep the lock taken for at least this time from its start, even if the command ends before"},
			&cli.BoolFlag{Name: "retry-failed", Usage: "with --hold-at-least: release the lock at once if the command fails, for another try"},
			&cli.DurationFlag{Name: "lock-time-max", HideDefault: true, Usage: "end the command after this time (default: never)"},
			&cli.DurationFlag{Name: "grace", Value: 5 * time.Second, Usage: "time between SIGTERM and SIGKILL when the lock is lost"},
		),
		Action: a.runAction,
	}
}

// waitFlags are those of a command that waits for a lock.
func waitFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "n", Aliases: []string{"no-wait"}, Usage: "give up at once if others have the lock"},
		&cli.DurationFlag{Name: "w", HideDefault: true, Aliases: []string{"wait"}, Usage: "wait at most this long for the lock (default: $WLLOCK_WAIT, or for ever)"},
		&cli.IntFlag{Name: "E", Aliases: []string{"conflict-exit-code"}, Value: notAcquired, Usage: "exit with this `CODE` when others have the lock"},
		&cli.BoolFlag{Name: "q", Aliases: []string{"quiet"}, Usage: "print nothing when others have the lock"},
	}
}

const runDescription = `Waits for the lock SYSTEM:NAME:KEY, runs COMMAND while it holds the lock, and releases it. COMMAND gets the lock's
full name in WLLOCK_LOCK_KEY and the fencing token in WLLOCK_LOCK_FENCE (0: the backend has none), for a store that
refuses smaller ones. wllock passes signals on to COMMAND. WLLOCK_LOCK_PID has wllock's process id. By that, wllock
refuses a run inside COMMAND that requests the same lock, because it would wait for itself.

Without COMMAND wllock holds the lock until Ctrl-C or SIGTERM, and then exits with 0.

With --token the lock is one that wllock take has taken, instead of NAME KEY. It is renewed and released like any other.

If the lock is lost, COMMAND and its descendants get SIGTERM, and after the grace SIGKILL.

Exit codes: COMMAND's own; 64 wrong usage, 69 the backend is unavailable, 70 the lock was lost, 75 others have the
lock (another one by -E), 126 COMMAND cannot be executed, 127 there is no such COMMAND. If a signal ends COMMAND, or
the wait for the lock, wllock dies by the same signal; shells call that 128 and its number.`

// job is one run.
type job struct {
	app       *app
	path      string // of the program; "": none is run
	name, key string
	token     wllock.Token // of the lock, which was taken before; "": it is acquired
	grace     time.Duration
	least     time.Duration // --hold-at-least
	retry     bool          // --retry-failed
	conflict  int           // exit code when others have the lock
	quiet     bool          // about that
	opts      []wllock.CallOption
	settings  config.Config
	signals   chan os.Signal
}

func (a *app) runAction(ctx context.Context, c *cli.Command) error {
	j, err := a.newJob(c)
	if err != nil {
		return err
	}
	j.notice(child.Signals())
	defer signal.Stop(j.signals)
	a.speakAside()
	startThreads()
	return j.locked(ctx, c, func(_ context.Context, locker *wllock.Locker, lock *wllock.Lock) error {
		if j.path == "" {
			return j.hold(lock)
		}
		return j.under(locker, lock)
	})
}

// locked waits for the lock, and has it used.
func (j *job) locked(ctx context.Context, c *cli.Command, use func(context.Context, *wllock.Locker, *wllock.Lock) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	locker, lock, err := j.acquire(ctx, c.Duration("timeout"), cancel)
	if locker != nil {
		defer func() { _ = timely(locker.Close) }()
	}
	if err != nil {
		return j.refusal(err)
	}
	return use(ctx, locker, lock)
}

// notice has signals come to j.signals.
func (j *job) notice(signals []os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) { // by nohup, or a shell without job control: so it stays
			signal.Notify(j.signals, s)
		}
	}
}

// newJob checks the command line.
func (a *app) newJob(c *cli.Command) (*job, error) {
	args := c.Args().Slice()
	switch {
	case c.Name == "take" && (a.dashed || len(args) != 2):
		return nil, usageError("want NAME KEY: see wllock help take")
	case c.IsSet("token") && len(args) > 0:
		return nil, usageError("--token and NAME KEY exclude each other: the token knows its lock")
	case c.IsSet("token") && slices.ContainsFunc([]string{"n", "w", "s", "permits", "hold-at-least"}, c.IsSet):
		return nil, usageError("--token and the flags of a wait, -s, --permits and --hold-at-least exclude each other: the lock is taken already")
	case a.dashed && len(a.after) == 0 || len(args) != 2 && !c.IsSet("token"):
		return nil, usageError("want NAME KEY -- COMMAND, or NAME KEY alone: see wllock help run")
	case c.Bool("n") && c.IsSet("w"):
		return nil, usageError("-n and -w exclude each other")
	case c.Bool("retry-failed") && !c.IsSet("hold-at-least"):
		return nil, usageError("--retry-failed goes with --hold-at-least: without that, the lock is free when the command ends")
	case c.Bool("s") && c.IsSet("hold-at-least"):
		return nil, usageError("--shared and --hold-at-least exclude each other")
	case c.Bool("s") && c.IsSet("permits"):
		return nil, usageError("--shared and --permits exclude each other")
	case c.IsSet("permits") && c.Int("permits") < 1:
		return nil, usageError("--permits %d: want 1 or more", c.Int("permits"))
	}
	if code := c.Int("E"); code < 0 || code > 255 {
		return nil, usageError("--conflict-exit-code %d: want 0 to 255", code)
	}
	for _, name := range []string{"w", "hold-at-least", "lock-time-max", "grace", "timeout"} {
		if c.Duration(name) < 0 {
			return nil, usageError("--%s %v is negative", name, c.Duration(name))
		}
	}
	var token wllock.Token
	system := ""
	if c.IsSet("token") {
		var full string
		var err error
		if token, full, err = a.token(c.String("token")); err != nil {
			return nil, err
		}
		args = strings.SplitN(full, ":", 3)
		system, args = args[0], args[1:]
	}
	settings, err := a.settings(c, system)
	if err != nil {
		return nil, err
	}
	if err := a.notWithin(settings.SystemName + ":" + args[0] + ":" + args[1]); err != nil {
		return nil, err
	}
	path := ""
	if a.dashed {
		if path, err = child.Look(a.after[0]); err != nil {
			return nil, refusal(err)
		}
	}
	if settings.Instance == "" {
		settings.Instance = instanceOf(path)
	}
	return &job{
		app: a, path: path, name: args[0], key: args[1], token: token, grace: c.Duration("grace"), least: c.Duration("hold-at-least"), retry: c.Bool("retry-failed"), conflict: c.Int("E"),
		quiet: c.Bool("q"), opts: callOptions(c), settings: settings, signals: make(chan os.Signal, signalRoom),
	}, nil
}

// instanceOf is what others see of a holder: the host, wllock's process and the command. See show.Host.
func instanceOf(path string) string {
	process := fmt.Sprintf("-pid%d", os.Getpid())
	if path != "" {
		process += "-" + filepath.Base(path)
	}
	host, _ := os.Hostname() // without one the process is named all the same
	return identity.Clean(host[:min(len(host), max(identity.MaxName-len(process), 0))] + process)
}

func callOptions(c *cli.Command) []wllock.CallOption {
	opts := []wllock.CallOption{wllock.WithLockTimeMax(c.Duration("lock-time-max"))}
	if c.Bool("n") {
		opts = append(opts, wllock.NoWait())
	}
	if d := c.Duration("w"); c.IsSet("w") {
		opts = append(opts, wllock.WithWait(max(d, 1))) // 0 is no wait, and not for ever
	}
	if c.Bool("s") {
		opts = append(opts, wllock.Shared())
	}
	if n := c.Int("permits"); n > 0 {
		opts = append(opts, wllock.Permits(n))
	}
	if d := c.Duration("hold-at-least"); d > 0 {
		opts = append(opts, wllock.WithHoldAtLeast(d))
	}
	return opts
}

// acquired is what came of the wait for the lock.
type acquired struct {
	locker *wllock.Locker
	lock   *wllock.Lock
	err    error
}

// acquire waits for the lock until a signal asks to end.
func (j *job) acquire(ctx context.Context, timeout time.Duration, cancel context.CancelCauseFunc) (*wllock.Locker, *wllock.Lock, error) {
	done := make(chan acquired)
	go func() { done <- j.ask(ctx, timeout) }()
	var ended error
	for {
		select {
		case s := <-j.signals:
			if child.Ends(s) && ended == nil {
				ended = j.dies(s)
				cancel(ended)
			}
		case got := <-done:
			if ended != nil && got.lock != nil { // the grant came first: it is given back
				_ = timely(got.lock.ReleaseEarly)
			}
			return got.locker, got.lock, cmp.Or(ended, got.err)
		}
	}
}

// ask connects and waits for the lock. An outage policy of services is not for commands: each process would run its own.
func (j *job) ask(ctx context.Context, timeout time.Duration) (got acquired) {
	connecting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if got.locker, got.err = j.settings.Open(connecting, wllock.WithOutage(wllock.FailClosed)); got.err == nil {
		if j.token != "" {
			got.lock, got.err = got.locker.Adopt(ctx, j.token, j.opts...)
		} else {
			got.lock, got.err = got.locker.Acquire(ctx, j.name, j.key, j.opts...)
		}
	}
	return got
}

// refusal is the exit of a command that does not run.
func refusal(err error) error {
	if e, ok := errors.AsType[*exit](err); ok {
		return e
	}
	code := usage
	if e, ok := errors.AsType[*child.Error](err); ok {
		code = e.Code
	}
	if errors.Is(err, wllock.ErrUnavailable) || errors.Is(err, errors.ErrUnsupported) {
		code = unavailable
	}
	return &exit{code, err}
}

// refusal is the exit when the lock was not acquired.
func (j *job) refusal(err error) error {
	if errors.Is(err, wllock.ErrLeaseLost) {
		return &exit{lost, fmt.Errorf("the token was used before, or its time has passed: %w", err)}
	}
	if !errors.Is(err, wllock.ErrHeld) && !errors.Is(err, wllock.ErrWaitTimeout) && !errors.Is(err, wllock.ErrQueueFull) {
		return refusal(err)
	}
	if j.quiet {
		err = nil
	}
	return &exit{j.conflict, err}
}

// under runs the command under the lock, and notes how it has ended.
func (j *job) under(locker *wllock.Locker, lock *wllock.Lock) error {
	if err := context.Cause(lock.Context()); err != nil { // wllock stood still meanwhile
		_ = timely(lock.ReleaseEarly)
		return &exit{lost, err}
	}
	j.notice(child.StopSignals())
	began := time.Now()
	c, err := child.Start(j.path, j.app.after, environment(j.app.environ, lock))
	if err != nil {
		_ = timely(lock.ReleaseEarly) // nothing has run
		return refusal(err)
	}
	if !j.watch(c, lock) {
		j.least = 0 // others may have the lock
		j.record(locker, lock, began, "lock lost")
		return j.lost(lock)
	}
	result, release := resultOf(c), lock.Release
	if j.retry && result != distributed.RunOK {
		j.least, release = 0, lock.ReleaseEarly
	}
	j.record(locker, lock, began, result)
	if err := j.release(release, fmt.Sprintf("the command ended, with %d", c.Code())); err != nil {
		return err
	}
	if s := c.Signal(); s != nil {
		return j.dies(s)
	}
	return &exit{code: c.Code()}
}

// release gives the lock back. The error is that it had been lost before what happened last.
func (j *job) release(release func(context.Context) error, last string) error {
	switch err := timely(release); {
	case errors.Is(err, wllock.ErrLeaseLost):
		return &exit{lost, fmt.Errorf("the lock was lost before %s: %w", last, err)}
	case err != nil:
		j.app.say("the lock is free when its lease has expired: %v", err)
	}
	return nil
}

// lost ends a run whose lock was lost, which has been said. It says who broke the lock, if somebody did.
func (j *job) lost(lock *wllock.Lock) error {
	if e, ok := errors.AsType[*wllock.Error](timely(lock.Release)); ok && e.Broken != nil {
		j.app.say("the lock was broken: %s", show.Broken(*e.Broken))
	}
	return &exit{code: lost}
}

// hold keeps the lock until a signal ends it. Ctrl-C is how that is meant to end, and SIGTERM how a service manager does it.
func (j *job) hold(lock *wllock.Lock) error {
	j.app.say("%s is held, fence %d: Ctrl-C releases it", j.app.shown(lock.Key()), lock.Fence())
	for {
		select {
		case s := <-j.signals: // if the lock is lost as well, the release says so
			if !child.Ends(s) {
				continue
			}
			if err := j.release(lock.Release, "its end, by a signal"); err != nil {
				return err
			}
			if s == os.Interrupt || s == syscall.SIGTERM {
				return nil
			}
			return j.dies(s)
		case <-lock.Context().Done():
			j.app.say("%v", context.Cause(lock.Context()))
			return j.lost(lock)
		}
	}
}

// dies has wllock die by a signal when all is released and closed.
func (j *job) dies(s os.Signal) error {
	j.app.diesBy = s
	return &exit{code: child.CodeOf(s)}
}

// watch passes signals on until the command has ended. kept: the lock was not lost before, in which case the command was ended.
func (j *job) watch(c *child.Child, lock *wllock.Lock) (kept bool) {
	lostLock, ended, kept := lock.Context().Done(), c.Done(), true
	for {
		select {
		case <-ended:
			return kept
		case s := <-j.signals:
			if err := c.Pass(s); err != nil {
				j.app.say("signal %v is not passed on: %v. %s", s, err, otherUser)
			}
		case <-lostLock:
			lostLock, kept = nil, false
			ended = j.end(c) // before anything is said
			j.app.say("%v: ending the command", context.Cause(lock.Context()))
		}
	}
}

// end ends all that descends from the command. The channel is closed when nothing is left of it, or what is left has been named.
func (j *job) end(c *child.Child) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, p := range c.End(j.grace) {
			j.app.say("process %d (%s) works on without the lock: %v", p.Pid, p.Name, whyLeft(p.Err))
		}
	}()
	return done
}

// whyLeft is the reason why a process has not ended.
func whyLeft(err error) string {
	if err == nil {
		return "the system has not ended it yet"
	}
	return err.Error() + ". " + otherUser
}

// environment is that of the command: what this process was started with, and the lock.
func environment(own []string, lock *wllock.Lock) []string {
	var env []string
	for _, entry := range own {
		if name, _, _ := strings.Cut(entry, "="); name != keyVariable && name != fenceVariable && name != pidVariable { // of an outer lock
			env = append(env, entry)
		}
	}
	return append(env, keyVariable+"="+lock.Key(), fenceVariable+"="+strconv.FormatUint(lock.Fence(), 10), pidVariable+"="+strconv.Itoa(os.Getpid()))
}

// timely gives the backend some time to answer.
func timely(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	return f(ctx)
}
