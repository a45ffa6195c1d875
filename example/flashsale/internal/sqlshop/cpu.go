package sqlshop

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// ServerCPU is the CPU time that the database's server has used so far. It is not known (false) unless the server runs on
// this machine, which has a /proc, and tells its process.
func (s *Shop) ServerCPU(ctx context.Context) (time.Duration, bool) {
	if !s.local || s.dialect.serverPID == nil {
		return 0, false
	}
	pid, err := s.dialect.serverPID(ctx, s)
	if err != nil {
		return 0, false
	}
	return treeCPU(pid, s.dialect.programs)
}

// postmaster is the parent of the process that serves this connection.
func postmaster(ctx context.Context, s *Shop) (pid int, err error) {
	if err := s.db.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return 0, err
	}
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return stat.PPID, err
}

func mysqld(ctx context.Context, s *Shop) (int, error) {
	var file string
	err := s.db.QueryRowContext(ctx, `SELECT CONCAT(IF(@@pid_file LIKE '/%', '', @@datadir), @@pid_file)`).Scan(&file)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// treeCPU adds up a process and its children, those that have ended included. The name is checked because the server may
// count its processes from within a container.
func treeCPU(pid int, programs []string) (total time.Duration, ok bool) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, false
	}
	for _, p := range all {
		stat, err := p.Stat()
		switch {
		case err != nil: // it has just ended
		case p.PID == pid:
			ok = slices.Contains(programs, stat.Comm)
			total += ticks(stat.UTime + stat.STime + uint(stat.CUTime+stat.CSTime))
		case stat.PPID == pid:
			total += ticks(stat.UTime + stat.STime)
		}
	}
	return total, ok
}

// ticks are hundredths of a second on every platform that Linux gives programs.
func ticks(n uint) time.Duration { return time.Duration(n) * 10 * time.Millisecond }
