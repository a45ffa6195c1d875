package command

import (
	"cmp"
	"context"
	"fmt"
	"net/url"

	"github.com/urfave/cli/v3"

	"github.com/wllock/wllock/cmd/wllock/internal/doctor"
	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/distributed/sqllock/mysql"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
)

const doctorDescription = `Opens the backend as a service does, which checks every right that the system's locks need. It takes five locks of
the name wllock-doctor, and asks the server for its version, role, replicas, memory, persistence and clock. For each
problem it says what it means and how to fix it. It changes nothing else. It only reads a file of SQLite, and takes no
lock there.

Exit codes: 0 all is well, 1 there are warnings, 2 there are errors, 64 wrong usage.`

func (a *app) doctor() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "check a backend for problems", ArgsUsage: "[URL]", Description: doctorDescription,
		Flags: []cli.Flag{jsonFlag},
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := a.urlArgument(c); err != nil {
				return err
			}
			settings, err := a.settings(c, "")
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, 3*c.Duration("timeout"))
			defer cancel()
			found, err := doctor.Examine(ctx, reading(settings))
			if err != nil {
				return openError(err)
			}
			if c.Bool("json") {
				if err := show.JSON(a.out, found); err != nil {
					return err
				}
			} else {
				doctor.Write(a.out, found)
			}
			return &exit{code: int(doctor.Worst(found))}
		},
	}
}

// urlArgument takes a URL that stands as the only argument for the backend's.
func (a *app) urlArgument(c *cli.Command) error {
	switch args := a.rest(c); len(args) {
	case 0:
		return nil
	case 1:
		return c.Root().Set("backend", args[0])
	default:
		return usageError("want one URL: see wllock help %s", c.Name)
	}
}

func (a *app) migrate() *cli.Command {
	return &cli.Command{
		Name: "migrate", Usage: "create the tables of a backend in a database, if they are missing", ArgsUsage: "[URL]",
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := a.urlArgument(c); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, c.Duration("timeout"))
			defer cancel()
			settings, err := a.settings(c, cmp.Or(a.system(c), "any")) // tables are for all systems
			if err != nil {
				return err
			}
			u, err := doctor.FullURL(ctx, settings)
			if err != nil {
				return &exit{usage, err}
			}
			if err := migrate(ctx, u); err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, "the tables wllock_locks, wllock_waiters, wllock_meta and wllock_runs are there")
			return err
		},
	}
}

func migrate(ctx context.Context, u *url.URL) error {
	var err error
	switch u.Scheme {
	case "postgres", "postgresql":
		err = postgres.Migrate(ctx, u.String())
	case "mysql":
		err = mysql.Migrate(ctx, u.String())
	case "sqlite":
		err = sqlite.Migrate(ctx, u.String())
	default:
		return usageError("only databases have tables: want postgres://, mysql:// or sqlite://")
	}
	if err != nil {
		return &exit{unavailable, fmt.Errorf("migrate: %w", err)}
	}
	return nil
}
