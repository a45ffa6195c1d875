// Command wllock locks from the shell, and shows and ends locks: flock(1) for a fleet, over every backend of the library.
// docs/cli.md describes it, and so does wllock help.
package main

import (
	"os"

	"github.com/wllock/wllock/cmd/wllock/internal/command"
)

func main() { os.Exit(command.Main(os.Args)) }
