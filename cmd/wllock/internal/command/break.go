package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/distributed"
)

const breakDescription = `Shows the holder, asks, and ends its lease: the next in the queue gets the lock, with a fence above all of the
holder's, and the holder's context ends. The holder may still work then: only a store that checks fences refuses its
later writes. The command ends only the lease that it has shown, never that of a later holder. It prints the author and
the reason as a log line, and wllock who shows them for a day.

Exit codes: 0 the lease was ended; 1 it was not: the lock is free, has changed hands, or the answer was no; 64 wrong
usage; 69 the backend is unavailable or cannot do it.`

func (a *app) breaks() *cli.Command {
	return &cli.Command{
		Name: "break", Usage: "end the lease of a holder by force", ArgsUsage: "NAME KEY | SYSTEM:NAME:KEY", Description: breakDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "reason", Usage: "`TEXT` that wllock who shows later (required)"},
			&cli.StringFlag{Name: "by", Usage: "`WHO` ends the lease (default: user@host)"},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask"},
			jsonFlag, showKeysFlag,
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			full, system, err := a.fullName(c)
			if err != nil {
				return err
			}
			if strings.TrimSpace(c.String("reason")) == "" {
				return usageError("say why: --reason TEXT")
			}
			if !c.Bool("yes") && !term.IsTerminal(int(a.in.Fd())) {
				return usageError("there is no terminal to ask at: --yes ends the lease without asking")
			}
			settings, err := a.settings(c, system)
			if err != nil {
				return err
			}
			return a.withInspector(ctx, c, settings, func(ctx context.Context, i distributed.Inspector) error {
				return a.breakOne(ctx, c, i, full)
			})
		},
	}
}

func (a *app) breakOne(ctx context.Context, c *cli.Command, i distributed.Inspector, full string) error {
	found, err := a.inspect(ctx, i, full)
	if err != nil {
		return err
	}
	show.Who(a.err, a.shownOf(found), distributed.Runs{}, time.Now())
	if !found.Held() {
		return &exit{code: no}
	}
	by := cmp.Or(c.String("by"), operator())
	if _, err := distributed.NewBreaking(found, by, c.String("reason")); err != nil {
		return &exit{usage, err}
	}
	if !c.Bool("yes") && !a.confirmed() {
		return &exit{no, errors.New("nothing was changed")}
	}
	record, err := i.Break(ctx, found, by, c.String("reason"))
	if errors.Is(err, distributed.ErrNotHeld) {
		return &exit{no, errors.New("the lock was released or has changed hands meanwhile: nothing was changed")}
	} else if err != nil {
		return &exit{unavailable, err}
	}
	return a.audit(c, a.shown(found.Key), record)
}

// confirmed asks at the terminal.
func (a *app) confirmed() bool {
	fmt.Fprint(a.err, "End this lease? What its holder does may go on for a while. Type yes: ")
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	return strings.TrimSpace(answer) == "yes"
}

// audit prints what was done, for a log.
func (a *app) audit(c *cli.Command, full string, b distributed.Breaking) error {
	if c.Bool("json") {
		return show.JSON(a.out, struct {
			Key string `json:"key"`
			*show.Break
		}{full, show.NewBreak(b)})
	}
	slog.New(slog.NewTextHandler(a.out, nil)).Warn("lease ended by force",
		"key", full, "holder", b.Holder, "by", b.By, "reason", b.Reason, "fence", b.Fence)
	return nil
}

// operator is who runs this program.
func operator() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
