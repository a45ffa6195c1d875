//go:build !unix

package live

import (
	"context"
	"errors"
	"os"
	"regexp"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Options are what a user asks for.
type Options struct {
	Title    string
	Prefix   string
	Shown    func(full string) string // a full name as it is shown
	Filter   *regexp.Regexp
	Interval time.Duration
	Colour   bool
}

// Run refuses.
func Run(context.Context, *os.File, *os.File, distributed.Inspector, Options) error {
	return errors.New("the live view needs a terminal of Unix: use --once")
}
