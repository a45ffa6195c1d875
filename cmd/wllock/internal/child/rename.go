//go:build unix

package child

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// stubVariable has this program become another one in the process that it is started as; its value is the path. The arguments are the other's.
const stubVariable = "WLLOCK_RUN_STUB"

// Variables of systemd that are for the process whose number they hold, and for no child of it: wllock's number becomes the command's.
// LISTEN_PIDFDID says the same of a process that has no number yet, so it is left out.
var ownVariables = []string{"LISTEN_PID", "WATCHDOG_PID"}

const pidfdVariable = "LISTEN_PIDFDID"

// named reports whether a variable names this process.
func named(env []string) bool {
	return slices.ContainsFunc(ownVariables, func(name string) bool { return slices.Contains(env, name+"="+strconv.Itoa(os.Getpid())) })
}

// through starts a command by way of this program, when a variable has to hold the command's process id: only the new process knows that
// before the command begins.
func through(path string, env []string) (string, []string) {
	if !named(env) {
		return path, env
	}
	self, err := os.Executable()
	if err != nil {
		return path, env
	}
	return self, append(slices.Clone(env), stubVariable+"="+strconv.Itoa(os.Getpid())+":"+path)
}

// Become is called first of all: it makes the stub that through starts the command, and returns otherwise, or with the reason why not.
func Become(args []string) error {
	parent, path, ok := strings.Cut(os.Getenv(stubVariable), ":")
	if !ok || parent != strconv.Itoa(os.Getppid()) {
		return nil
	}
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
	return &Error{CannotExecute, &os.PathError{Op: "start", Path: path, Err: syscall.Exec(path, args, env)}}
}
