package sqlshop

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ServerCPU is the CPU time that the database's server has used so far, with its children, and any other server of its kind on this
// machine. It is not known (false) unless the server runs on this machine, which has a /proc: by its loopback interface or a socket file.
func (s *Shop) ServerCPU() (total time.Duration, known bool) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Hostname() != "" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
		return 0, false
	}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, _ := os.ReadFile(file) // nothing of a process that has just ended; see proc_pid_stat(5)
		head, tail, _ := strings.Cut(string(text), ") ")
		_, program, _ := strings.Cut(head, " (")
		fields := strings.Fields(tail)
		if !slices.Contains(s.dialect.programs, program) || len(fields) < 15 {
			continue
		}
		known = true
		for _, ticks := range fields[11:15] { // its own, and those of children that have ended
			n, _ := strconv.Atoi(ticks)
			total += time.Duration(n) * 10 * time.Millisecond // a hundredth of a second on every platform that Linux gives programs
		}
	}
	return total, known
}
