package conn

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
)

// go-redis prints a line to standard error for each dial that fails, through one logger for all clients of the program. The
// dials of this package are reported by the errors of its calls, so their lines are left out; those of the application's
// own clients are printed as before. This is done before main begins: an application that sets a logger (redis.SetLogger)
// replaces this one and gets all lines.
func init() {
	redis.SetLogger(filter{log.New(os.Stderr, "redis: ", log.LstdFlags|log.Lshortfile)})
}

// filter leaves out the lines about the dials of this package.
type filter struct{ next *log.Logger }

// printDepth is from the call that prints in go-redis to Output: its logger, and ours.
const printDepth = 3

// Printf implements the interface of go-redis' loggers.
func (f filter) Printf(_ context.Context, format string, args ...any) {
	for _, arg := range args {
		if err, ok := arg.(error); ok && errors.Is(err, distributed.ErrUnreached) {
			return
		}
	}
	_ = f.next.Output(printDepth, fmt.Sprintf(format, args...))
}
