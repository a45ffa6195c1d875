//go:build unix

package child

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// stubVariable has this program become another one in the process that it is started as. Its value is the parent's process id,
// what begin needs, and the path. The arguments are the other's.
const stubVariable = "WLLOCK_RUN_STUB"

// Variables of systemd that are for the process whose number they hold, and for no child of it: wllock's number becomes the command's.
// LISTEN_PIDFDID says the same of a process that has no number yet, so it is left out.
var ownVariables = []string{"LISTEN_PID", "WATCHDOG_PID"}

const pidfdVariable = "LISTEN_PIDFDID"

// named reports whether a variable names this process.
func named(env []string) bool {
	return slices.ContainsFunc(ownVariables, func(name string) bool { return slices.Contains(env, name+"="+strconv.Itoa(os.Getpid())) })
}

// through starts a command by way of this program, where only the new process can do what is needed before the command begins: write its
// own process id into a variable, or ignore or block a signal that Go's runtime does not.
func through(path string, env []string) (string, []string) {
	if !named(env) && kept() {
		return path, env
	}
	self, err := os.Executable()
	if err != nil {
		return path, env
	}
	return self, append(slices.Clone(env), fmt.Sprintf("%s=%d:%s:%s", stubVariable, os.Getpid(), beginning(), path))
}

// Become is called first of all: it makes the stub that through starts the command, and returns otherwise, or with the reason why not.
func Become(args []string) error {
	value := strings.SplitN(os.Getenv(stubVariable), ":", 3)
	if len(value) < 3 || value[0] != strconv.Itoa(os.Getppid()) {
		return nil
	}
	parent, path := value[0], value[2]
	var env []string
	for _, entry := range os.Environ() {
		switch name, value, _ := strings.Cut(entry, "="); {
		case name == stubVariable, name == pidfdVariable:
		case slices.Contains(ownVariables, name) && value == parent:
			env = append(env, name+"="+strconv.Itoa(os.Getpid()))
		default:
			env = append(env, entry)
		}
	}
	begin(value[1])
	err := syscall.Exec(path, args, env)
	if errors.Is(err, syscall.ENOEXEC) {
		err = syscall.Exec(shell, asScript(path, args), env)
	}
	return &Error{CannotExecute, &os.PathError{Op: "start", Path: path, Err: err}}
}
