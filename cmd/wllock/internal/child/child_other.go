//go:build !unix

// Package child runs a command, on Unix.
package child

import (
	"errors"
	"os"
	"time"
)

var errUnsupported = errors.New("commands can be run on Unix only")

// Look refuses: a process group is needed.
func Look(string) (string, error) { return "", &Error{CannotExecute, errUnsupported} }

// Child is a running command.
type Child struct{}

// Start refuses.
func Start(string, []string, []string) (*Child, error) {
	return nil, &Error{CannotExecute, errUnsupported}
}

func (c *Child) Done() <-chan struct{}       { return nil }
func (c *Child) Code() int                   { return CannotExecute }
func (c *Child) Signal() os.Signal           { return nil }
func (c *Child) Pass(os.Signal) error        { return nil }
func (c *Child) End(time.Duration) []Process { return nil }

func Signals() []os.Signal     { return []os.Signal{os.Interrupt} }
func StopSignals() []os.Signal { return nil }
func Ends(os.Signal) bool      { return true }
func CodeOf(os.Signal) int     { return 130 }

// Ignore does nothing: there are no commands.
func Ignore() {}

// Become returns: there are no commands.
func Become([]string) error { return nil }

// Die returns: processes are not ended by signals here.
func Die(os.Signal) {}
