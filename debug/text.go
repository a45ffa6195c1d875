package debug

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/nametext"
)

// Text implements opspage.Page.
func (p page) Text(w io.Writer) {
	for i, s := range p.lockers {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%d waiting, %d held\n", s.stats.Total.Waiting, s.stats.Total.Held)
		fmt.Fprintf(w, "system %s, instance %s, pid %d, up %s\n", s.system, s.instance, p.pid, uptime(p.uptime))
		s.writeText(w)
	}
}

func (s section) writeText(w io.Writer) {
	fmt.Fprintf(w, "%v\n\n", s.backend())
	if l := s.lastLost(); l != nil {
		fmt.Fprintf(w, "last lost: %s, %s ago: %q\n\n", l.Key, l.Ago, l.Why)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tWAITING\tTHRESHOLD\tHELD\tTURN\tACQUIRED\tHANDOFFS\tSHED\tTIMEOUTS\tUNAVAILABLE\tLOST\tBATCHES")
	for _, n := range s.names {
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", n.Name, n.Waiting, number(n.Threshold), n.Held, turn(n),
			n.Acquired, n.Handoffs, n.Shed, n.Timeouts, n.Unavailable, n.Lost, n.Batches)
	}
	_ = t.Flush() // fails only if the client has disconnected
	if s.moreNames {
		fmt.Fprintf(w, "more names exist; these %d have the most waiters\n", nameLimit)
	}
	fmt.Fprintln(w)
	t.Init(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tMODE\tWAITING\tHOLDERS\tHOLDER\tBATCH\tHELD\tFENCE\tTURNS\tLEASE\tSTATE")
	for _, l := range s.locks {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\n", nametext.Quote(l.Key), l.Mode, l.Waiting, orDash(uint64(l.Holders)), s.holder(l),
			l.Batch, short(l.HeldFor), orDash(l.Fence), l.Turns, s.left(l.Until), state(l))
	}
	_ = t.Flush() // as above
	if s.moreLocks {
		fmt.Fprintf(w, "more keys exist; these %d have the most waiters\n", limit)
	}
	if len(s.stats.Runs) == 0 {
		return
	}
	fmt.Fprintln(w)
	t.Init(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tLAST RUN\tTOOK\tRESULT\tNEXT")
	for _, j := range s.jobs() {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", j.Job, j.Last, j.Took, j.Result, j.Next)
	}
	_ = t.Flush() // as above
}

// number returns a limit.
func number(n int) string {
	if n == wllock.Unlimited {
		return "any"
	}
	return fmt.Sprint(n)
}

// orDash is "-" for 0: nobody holds the lock.
func orDash(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}
