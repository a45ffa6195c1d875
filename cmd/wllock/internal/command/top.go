package command

import (
	"context"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"github.com/wllock/wllock/cmd/wllock/internal/live"
	"github.com/wllock/wllock/distributed"
)

// shortestInterval keeps a typing error from costing the backend much.
const shortestInterval = 100 * time.Millisecond

const topDescription = `The locks that most instances wait for come first, and of these the longest held. The view reads locks as fast as the
backend answers until there is a first screen, then 4,000 in a second, and those on the screen in each interval: of
100,000 locks, one that was not on the screen is noticed within half a minute. It changes nothing.

Without a terminal it is --once. The variable NO_COLOR takes the colours away.`

func (a *app) top() *cli.Command {
	return &cli.Command{
		Name: "top", Usage: "watch the locks that are held, those with the longest queues first", ArgsUsage: "[SYSTEM[:NAME]]",
		Description: topDescription,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "once", Usage: "print the locks, all of them read, and end"},
			&cli.BoolFlag{Name: "json", Usage: "for programs; once"},
			&cli.StringFlag{Name: "filter", Usage: "only locks whose full name, as it is printed, matches this `REGEXP`"},
			&cli.DurationFlag{Name: "interval", Value: 2 * time.Second, Usage: "between two screens"},
			&cli.IntFlag{Name: "limit", Usage: "print so many at most (default: all)", HideDefault: true},
			&cli.BoolFlag{Name: "no-color", Usage: "no colours"},
			showKeysFlag,
		},
		Action: a.topAction,
	}
}

func (a *app) topAction(ctx context.Context, c *cli.Command) error {
	prefix, system, err := a.prefix(c)
	if err != nil {
		return err
	}
	filter, err := regexp.Compile(c.String("filter"))
	if err != nil {
		return usageError("--filter: %w", err)
	}
	if err := checkInterval(c); err != nil {
		return err
	}
	return a.inspected(ctx, c, system, func(ctx context.Context, i distributed.Inspector) error {
		if a.once(c) {
			return a.topOnce(ctx, c, i, prefix, filter)
		}
		return live.Run(ctx, a.in, os.Stdout, i, live.Options{
			Title: prefix + "*", Prefix: prefix, Shown: a.shown, Filter: filter, Interval: c.Duration("interval"),
			Colour: os.Getenv("NO_COLOR") == "" && !c.Bool("no-color"),
		})
	})
}

func checkInterval(c *cli.Command) error {
	if d := c.Duration("interval"); d < shortestInterval {
		return usageError("--interval %v: want %v or more", d, shortestInterval)
	}
	return nil
}

// once reports that there is no live view to be shown.
func (a *app) once(c *cli.Command) bool {
	return c.Bool("once") || c.Bool("json") || !term.IsTerminal(int(a.in.Fd())) || !term.IsTerminal(int(os.Stdout.Fd()))
}

func (a *app) topOnce(ctx context.Context, c *cli.Command, i distributed.Inspector, prefix string, filter *regexp.Regexp) error {
	all, err := list(ctx, i, prefix)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(i distributed.Inspection) bool { return !filter.MatchString(a.shown(i.Key)) })
	now := time.Now()
	live.Sort(all, now)
	if n := c.Int("limit"); n > 0 {
		all = all[:min(n, len(all))]
	}
	return a.printAll(c, all, now)
}

// terminalWidth is that of the terminal to which this program writes, or none if it writes elsewhere.
func terminalWidth(none int) int {
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width <= 0 {
		return none
	}
	return width
}
