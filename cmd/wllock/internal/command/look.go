package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/nametext"
)

// pageSize is how many locks one page of a list asks for: the backend answers others between pages.
const pageSize = 500

var jsonFlag = &cli.BoolFlag{Name: "json", Usage: "print JSON, for programs"}

func (a *app) who() *cli.Command {
	return &cli.Command{
		Name: "who", Usage: "show who holds a lock, and who waits for it", ArgsUsage: "NAME KEY | SYSTEM:NAME:KEY",
		Description: "Exit codes: 0 the lock is held, 1 it is free, 64 wrong usage, 69 the backend is unavailable or cannot tell.",
		Flags:       []cli.Flag{jsonFlag, showKeysFlag},
		Action: func(ctx context.Context, c *cli.Command) error {
			full, system, err := a.fullName(c)
			if err != nil {
				return err
			}
			return a.inspected(ctx, c, system, func(ctx context.Context, i distributed.Inspector) error {
				return a.showOne(ctx, c, i, full)
			})
		},
	}
}

func (a *app) showOne(ctx context.Context, c *cli.Command, i distributed.Inspector, full string) error {
	found, err := a.inspect(ctx, i, full)
	if err != nil {
		return err
	}
	runs := runsOf(ctx, i, found.Key)
	found = a.shownOf(found)
	if c.Bool("json") {
		if err := show.JSON(a.out, show.NewLockAndRuns(found, runs, time.Now())); err != nil {
			return err
		}
	} else {
		show.Who(a.out, found, runs, time.Now())
	}
	if !found.Held() {
		return &exit{code: no}
	}
	return nil
}

func (a *app) ls() *cli.Command {
	return &cli.Command{
		Name: "ls", Usage: "list the locks that are held", ArgsUsage: "[SYSTEM[:NAME]]",
		Description: "Reads the list in pages and changes nothing. It may miss locks that come and go meanwhile.",
		Flags:       []cli.Flag{jsonFlag, showKeysFlag},
		Action: func(ctx context.Context, c *cli.Command) error {
			prefix, system, err := a.prefix(c)
			if err != nil {
				return err
			}
			return a.inspected(ctx, c, system, func(ctx context.Context, i distributed.Inspector) error {
				all, err := list(ctx, i, prefix)
				if err != nil {
					return err
				}
				return a.printAll(c, all, time.Now())
			})
		},
	}
}

// printAll prints locks.
func (a *app) printAll(c *cli.Command, all []distributed.Inspection, now time.Time) error {
	for n := range all {
		all[n] = a.shownOf(all[n])
	}
	if c.Bool("json") {
		return show.JSON(a.out, show.Locks(all))
	}
	return show.Table(a.out, all, now, terminalWidth(0))
}

// prefix is what the keys of a list begin with.
func (a *app) prefix(c *cli.Command) (prefix, system string, err error) {
	args := a.rest(c)
	if len(args) > 1 {
		return "", "", usageError("want SYSTEM or SYSTEM:NAME: see wllock help %s", c.Name)
	}
	text := a.system(c)
	if len(args) == 1 {
		if text = strings.TrimSuffix(args[0], ":"); text == "" {
			return "", "", usageError("the argument is empty: want SYSTEM, SYSTEM:NAME, or none for the system of %s", systemVariable)
		}
	}
	if text == "" {
		return "", "", usageError("no system: give SYSTEM, --system or %s", systemVariable)
	}
	system, name, named := strings.Cut(text, ":")
	if err := nametext.CheckName("system", system); err != nil {
		return "", "", &exit{usage, err}
	}
	if named {
		if err := nametext.CheckName("name", name); err != nil {
			return "", "", &exit{usage, err}
		}
	}
	return text + ":", system, nil
}

// list reads all pages, sorts them by key, and leaves out what is in two.
func list(ctx context.Context, i distributed.Inspector, prefix string) ([]distributed.Inspection, error) {
	var all []distributed.Inspection
	for cursor := ""; ; {
		page, next, err := i.List(ctx, prefix, cursor, pageSize)
		if err != nil {
			return nil, &exit{unavailable, fmt.Errorf("list: %w", err)}
		}
		all = append(all, page...)
		if cursor = next; cursor == "" {
			break
		}
	}
	slices.SortStableFunc(all, func(a, b distributed.Inspection) int { return cmp.Compare(a.Key, b.Key) })
	return slices.CompactFunc(all, func(a, b distributed.Inspection) bool { return a.Key == b.Key }), nil
}
