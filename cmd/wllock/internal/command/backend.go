package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/wllock/wllock/cmd/wllock/internal/doctor"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/dynamolock"
	"github.com/wllock/wllock/distributed/etcdlock"
	"github.com/wllock/wllock/distributed/kubelock"
	"github.com/wllock/wllock/distributed/memcachelock"
	"github.com/wllock/wllock/distributed/natslock"
	"github.com/wllock/wllock/distributed/s3lock"
	"github.com/wllock/wllock/distributed/sqllock/mysql"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
	"github.com/wllock/wllock/distributed/zklock"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/openurl"
)

const (
	backendVariable = "WLLOCK_BACKEND"
	systemVariable  = "WLLOCK_SYSTEM_NAME"
	memoryScheme    = "memory"
)

// settings reads the environment, in which the flags and a system that is named otherwise take their place.
func (a *app) settings(c *cli.Command, system string) (config.Config, error) {
	for variable, value := range map[string]string{backendVariable: c.String("backend"), systemVariable: cmp.Or(system, c.String("system"))} {
		if value == "" {
			continue
		}
		if err := os.Setenv(variable, value); err != nil {
			return config.Config{}, usageError("%s: %w", variable, err)
		}
	}
	if os.Getenv(backendVariable) == "" {
		return config.Config{}, usageError("no backend: give its URL by --backend or %s", backendVariable)
	}
	settings, err := config.FromEnv()
	if err != nil {
		return settings, &exit{usage, err}
	}
	if u, err := settings.Backend.Parse(); err == nil && u.Scheme == memoryScheme {
		return settings, usageError("memory:// is for the callers in one process: name a backend that processes share")
	}
	return withOpeners(settings), a.readSecret(c, settings)
}

// withOpeners adds the backends that are modules of their own.
func withOpeners(c config.Config) config.Config {
	c = c.WithOpener("postgres", postgres.Opener()).WithOpener("mysql", mysql.Opener()).WithOpener("sqlite", sqlite.Opener()).
		WithOpener("kubernetes", kubelock.Opener())
	c = c.WithOpener("s3", s3lock.Opener()).WithOpener("dynamodb", dynamolock.Opener())
	for _, secure := range []string{"", "s"} {
		c = c.WithOpener("etcd"+secure, etcdlock.Opener()).WithOpener("zk"+secure, zklock.Opener()).WithOpener("nats"+secure, natslock.Opener()).
			WithOpener("memcached"+secure, openurl.Opener(memcachelock.Open, nil))
	}
	return c
}

// reading is for commands that change nothing: SQLite creates files beside its own, and who only looks may be a user whose files the
// services cannot write.
func reading(c config.Config) config.Config {
	open := sqlite.Opener()
	return c.WithOpener("sqlite", func(ctx context.Context, u *url.URL) (distributed.Backend, error) {
		reads := *u
		reads.RawQuery = cmp.Or(u.RawQuery, "mode=ro")
		return open(ctx, &reads)
	})
}

// inspected runs f with the Inspector of a backend that changes nothing.
func (a *app) inspected(ctx context.Context, c *cli.Command, system string, f func(context.Context, distributed.Inspector) error) error {
	settings, err := a.settings(c, system)
	if err != nil {
		return err
	}
	return a.withInspector(ctx, c, reading(settings), f)
}

// withInspector runs f with the backend's Inspector, whose calls are bounded, and whose errors can be printed, and closes that.
func (a *app) withInspector(ctx context.Context, c *cli.Command, settings config.Config, f func(context.Context, distributed.Inspector) error) error {
	return a.withBackend(ctx, c, settings, func(ctx context.Context, b distributed.Backend) error {
		i, err := a.inspectorOf(c, settings, b)
		if err != nil {
			return err
		}
		return f(ctx, i)
	})
}

func (a *app) inspectorOf(c *cli.Command, settings config.Config, b distributed.Backend) (distributed.Inspector, error) {
	i, able := distributed.InspectorOf(b)
	if !able {
		return nil, &exit{unavailable, fmt.Errorf("the backend %s cannot tell who holds a lock", settings.Backend)}
	}
	return bounded{i, c.Duration("timeout"), a.told}, nil
}

// withBackend runs f with a backend, and closes that.
func (a *app) withBackend(ctx context.Context, c *cli.Command, settings config.Config, f func(context.Context, distributed.Backend) error) error {
	opening, cancel := context.WithTimeout(ctx, c.Duration("timeout"))
	defer cancel()
	backend, err := settings.OpenBackend(opening)
	if err != nil {
		return openError(err)
	}
	defer func() { _ = backend.Close() }()
	return f(ctx, backend)
}

// bounded is an Inspector that waits for each answer so long at most.
type bounded struct {
	distributed.Inspector
	timeout time.Duration
	told    func(error) error // makes errors that can be printed
}

func (b bounded) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	found, err := b.Inspector.Inspect(ctx, key)
	return found, b.told(err)
}

func (b bounded) List(ctx context.Context, prefix, cursor string, limit int) ([]distributed.Inspection, string, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	page, next, err := b.Inspector.List(ctx, prefix, cursor, limit)
	if err = b.told(err); err != nil && strings.Contains(err.Error(), "NOPERM") { // locks do without these rights, so users may
		err = fmt.Errorf("%w. On Redis a list takes %s", err, doctor.ListRights)
	}
	return page, next, err
}

func (b bounded) Break(ctx context.Context, found distributed.Inspection, by, reason string) (distributed.Breaking, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	broken, err := b.Inspector.Break(ctx, found, by, reason)
	return broken, b.told(err)
}

// Unwrap returns the backend, for its other abilities.
func (b bounded) Unwrap() distributed.Backend { return b.Inspector }

// openError tells a wrong setting from a backend that is away.
func openError(err error) error {
	if _, wrong := errors.AsType[*config.Error](err); wrong || !errors.Is(err, distributed.ErrUnavailable) {
		return &exit{usage, err}
	}
	return &exit{unavailable, err}
}

// system is the one that a flag or the environment names.
func (a *app) system(c *cli.Command) string {
	return cmp.Or(c.String("system"), os.Getenv(systemVariable))
}

// fullName joins the arguments NAME KEY, or checks the only one, a full name.
func (a *app) fullName(c *cli.Command) (full, system string, err error) {
	args := a.rest(c)
	system = a.system(c)
	switch {
	case len(args) == 2:
		if system == "" {
			return "", "", usageError("no system: give --system or %s, or the full name SYSTEM:NAME:KEY", systemVariable)
		}
		full = system + ":" + args[0] + ":" + args[1]
	case len(args) == 1 && strings.Count(args[0], ":") >= 2:
		full = args[0]
	default:
		hint := ""
		if os.Getenv("WLLOCK_KEY_SECRET") != "" || os.Getenv("WLLOCK_KEY_SECRET_FILE") != "" {
			hint = " (a shell takes a word that begins with # for a comment: quote a hash)"
		}
		return "", "", usageError("want NAME KEY, or one full name SYSTEM:NAME:KEY%s: see wllock help %s", hint, c.Name)
	}
	parts := strings.SplitN(full, ":", 3)
	if err := errors.Join(nametext.CheckName("system", parts[0]), nametext.CheckName("name", parts[1])); err != nil {
		return "", "", &exit{usage, err}
	}
	if parts[2] == "" {
		return "", "", usageError("the key is empty")
	}
	return full, parts[0], nil
}
