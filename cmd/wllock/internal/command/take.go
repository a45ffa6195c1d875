package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/cmd/wllock/internal/child"
)

const tokenOnStdin = "-"

func (a *app) take() *cli.Command {
	return &cli.Command{
		Name: "take", Usage: "take a lock for a later step, and print its token", ArgsUsage: "NAME KEY", Description: takeDescription,
		Flags: append(waitFlags(),
			&cli.DurationFlag{Name: "for", HideDefault: true, Usage: "keep the lock taken for at most this time, until its token is used"}),
		Action: a.takeAction,
	}
}

const takeDescription = `Waits for the lock SYSTEM:NAME:KEY, leaves it taken and prints a token. One later step, on any machine, continues
with the lock by the token: wllock run --token TOKEN runs a command under it, wllock give TOKEN releases it. If none
does, the lock is free when the time of --for has passed. A process that has the token has the lock: keep the token like
a password.

Exit codes: 64 wrong usage, 69 the backend is unavailable or cannot do it, 70 the lock was lost, 75 others have the lock
(another one by -E). If a signal ends the wait, wllock dies by the same signal.`

func (a *app) takeAction(ctx context.Context, c *cli.Command) error {
	if c.Duration("for") <= 0 {
		return usageError("say for how long the lock is to stay taken: --for 10m")
	}
	j, err := a.newJob(c)
	if err != nil {
		return err
	}
	if f, ok := a.out.(*os.File); ok && isNull(f) {
		return usageError("the token goes to standard output, which is closed, or %s: it would be lost", os.DevNull)
	}
	signal.Ignore(syscall.SIGPIPE) // a token that nobody reads is given back
	j.notice(child.Signals())
	defer signal.Stop(j.signals)
	return j.locked(ctx, c, func(ctx context.Context, locker *wllock.Locker, lock *wllock.Lock) error {
		ctx, cancel := context.WithTimeout(ctx, c.Duration("timeout"))
		defer cancel()
		token, err := j.detach(ctx, locker, lock, c.Duration("for"))
		switch {
		case errors.Is(err, wllock.ErrLeaseLost):
			return &exit{lost, err}
		case err != nil:
			_ = timely(lock.Release) // unless that was done
			return refusal(err)
		}
		if _, err := fmt.Fprintln(a.out, string(token)); err != nil { // nobody has it
			_ = locker.ReleaseToken(ctx, token)
			return &exit{unavailable, fmt.Errorf("the token cannot be printed, and the lock was released: %w", err)}
		}
		return nil
	})
}

// detach detaches the lock, unless a signal asks to end before.
func (j *job) detach(ctx context.Context, locker *wllock.Locker, lock *wllock.Lock, lasts time.Duration) (token wllock.Token, err error) {
	detaching, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		token, err = lock.Detach(detaching, lasts)
	}()
	for {
		select {
		case s := <-j.signals:
			if !child.Ends(s) {
				continue
			}
			cancel()
			<-done
			if err == nil {
				_ = locker.ReleaseToken(ctx, token)
			}
			return "", j.dies(s)
		case <-done:
			return token, err
		}
	}
}

func (a *app) give() *cli.Command {
	return &cli.Command{
		Name: "give", Usage: "release a lock by its token", ArgsUsage: "TOKEN", Description: giveDescription, Action: a.giveAction,
	}
}

const giveDescription = `Releases a lock that wllock take has taken. TOKEN is the token that it has printed; - reads it from the standard
input, which other users do not see.

Exit codes: 0 the lock was released; 1 it was not, because the token was used before, or its time has passed; 64 wrong usage; 69 the
backend is unavailable or cannot do it.`

func (a *app) giveAction(ctx context.Context, c *cli.Command) error {
	args := a.rest(c)
	if len(args) != 1 {
		return usageError("want TOKEN, or - and the token on the standard input")
	}
	token, full, err := a.token(args[0])
	if err != nil {
		return err
	}
	settings, err := a.settings(c, systemOf(full))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Duration("timeout"))
	defer cancel()
	locker, err := settings.Open(ctx, wllock.WithOutage(wllock.FailClosed))
	if err != nil {
		return refusal(err)
	}
	defer func() { _ = timely(locker.Close) }()
	if err = locker.ReleaseToken(ctx, token); errors.Is(err, wllock.ErrLeaseLost) {
		return &exit{no, fmt.Errorf("the token was used before, or its time has passed: %w", err)}
	} else if err != nil {
		return refusal(err)
	}
	return nil
}

// isNull reports whether a file is the null device, which stands for one that was closed at the start.
func isNull(f *os.File) bool {
	is, err := f.Stat()
	null, wrong := os.Stat(os.DevNull)
	return err == nil && wrong == nil && os.SameFile(is, null)
}

// token is the one of an argument, with the full name of its lock.
func (a *app) token(arg string) (token wllock.Token, full string, err error) {
	if arg == tokenOnStdin {
		if arg, err = line(a.in); err != nil {
			return "", "", usageError("reading the token: %w", err)
		}
	}
	token = wllock.Token(strings.TrimSpace(arg))
	if full, err = token.Key(); err != nil {
		return "", "", &exit{usage, err}
	}
	return token, full, nil
}

// line reads a line, and nothing behind it: that is for the command.
func line(from *os.File) (string, error) {
	var text []byte
	for one := make([]byte, 1); ; {
		n, err := from.Read(one)
		switch {
		case n == 1 && one[0] == '\n', err != nil && len(text) > 0:
			return string(text), nil
		case err != nil:
			return "", err
		case n == 1:
			text = append(text, one[0])
		}
	}
}

func systemOf(full string) string {
	system, _, _ := strings.Cut(full, ":")
	return system
}
