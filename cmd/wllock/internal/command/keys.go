package command

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

const secretVariables = "WLLOCK_KEY_SECRET or WLLOCK_KEY_SECRET_FILE"

var showKeysFlag = &cli.BoolFlag{Name: "show-keys", Usage: "print keys in plain text, even if " + secretVariables + " is set"}

// hashed is the form of a full name whose key wllock.HashKeys has made.
var hashed = regexp.MustCompile(`^[^:]+:[^:]+:#[0-9a-f]{16}$`)

// readSecret makes a.shown, which is how keys are printed: what this program says ends up in tickets and chats, as logs do.
func (a *app) readSecret(c *cli.Command, settings config.Config) error {
	redact, err := settings.KeyRedaction()
	if err != nil {
		return &exit{usage, err}
	}
	a.redact, a.showKeys = redact, c.Bool(showKeysFlag.Name)
	return nil
}

// shown is a full name as it is printed.
func (a *app) shown(full string) string {
	if a.showKeys {
		return full
	}
	return show.Redacted(full, a.redact)
}

// told is an error of the backend as it is printed.
func (a *app) told(err error) error {
	if a.redact == nil || a.showKeys || err == nil {
		return err
	}
	return keyless.Of(err)
}

// shownOf is what is printed of a lock.
func (a *app) shownOf(i distributed.Inspection) distributed.Inspection {
	i.Key = a.shown(i.Key)
	return i
}

// unhashed returns the full name of the lock that is meant: that itself, or the one in use whose key has this hash. If several may be
// meant, none is: a break must not end another's lease.
func (a *app) unhashed(ctx context.Context, i distributed.Inspector, full string) (string, error) {
	if a.redact == nil || !hashed.MatchString(full) {
		return full, nil
	}
	all, err := list(ctx, i, full[:strings.LastIndexByte(full, ':')+1])
	if err != nil {
		return "", err
	}
	var meant []string
	for _, one := range all {
		if one.Key == full || show.Redacted(one.Key, a.redact) == full {
			meant = append(meant, one.Key)
		}
	}
	switch len(meant) {
	case 0:
		return "", &exit{no, fmt.Errorf("no lock in use has the key or the hash %s: it is free, or its service has another secret", full)}
	case 1:
		return meant[0], nil
	}
	return "", usageError("%d locks have the key or the hash %s: give the key of one of them (wllock ls --show-keys)",
		len(meant), full)
}

// inspect asks for the lock that is meant.
func (a *app) inspect(ctx context.Context, i distributed.Inspector, full string) (found distributed.Inspection, err error) {
	if full, err = a.unhashed(ctx, i, full); err != nil {
		return found, err
	}
	if found, err = i.Inspect(ctx, full); err != nil {
		return found, &exit{unavailable, err}
	}
	if !found.Held() && a.redact == nil && hashed.MatchString(full) {
		a.say("%s may be a hash: to find its lock, set %s as the services have it", full, secretVariables)
	}
	return found, nil
}
