// Package identity names this process and the Lockers in it, so that a lock service, a log line and a page call a holder by the
// same name. That is the host, or in Kubernetes the pod, and letters that no other process has.
package identity

import (
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// MaxName is the length of the longest host name that DNS allows between two dots, and Kubernetes for a pod's host.
	MaxName = 63
	// suffixLength is the number of letters, of 5 bits each: 50 bits, so that a million processes of one name, all at once,
	// have two equal ones with a probability below 1 in 2,000.
	suffixLength = 10
	// unknownHost stands for a host without a name.
	unknownHost = "host"
)

// suffix tells this process from all others of its name.
var suffix = sync.OnceValue(func() string { return strings.ToLower(rand.Text()[:suffixLength]) })

// instances counts the Lockers of this process.
var instances atomic.Uint64

// Process returns the id of this process: its name ("": the host's), and letters of its own.
func Process(name string) string {
	if name == "" {
		name = host()
	}
	return name + "-" + suffix()
}

// Instance returns the id of a further Locker in this process (rule T11). The first one has the process's, the others a number
// behind it.
func Instance(name string) string {
	if n := instances.Add(1); n > 1 {
		return Process(name) + "-" + strconv.FormatUint(n, 10)
	}
	return Process(name)
}

// host returns the name of the machine.
var host = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return unknownHost
	}
	return Clean(name)
})

// Clean makes a name of a text: at most MaxName bytes, with a dash for each character that Check refuses.
func Clean(name string) string {
	name = strings.Map(func(r rune) rune {
		if allowed(r) {
			return r
		}
		return '-'
	}, name)
	if name == "" {
		return unknownHost
	}
	return name[:min(len(name), MaxName)]
}

// Check returns why a name cannot stand in an id: it has to be a word in the tokens, messages and client names of every lock
// service.
func Check(name string) error {
	if name == "" || len(name) > MaxName || strings.ContainsFunc(name, func(r rune) bool { return !allowed(r) }) {
		return fmt.Errorf("want 1 to %d letters, digits, dots, dashes and underscores, for example a host or pod name", MaxName)
	}
	return nil
}

func allowed(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_'
}
