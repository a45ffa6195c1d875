// Package history notes what processes do under locks, and judges it afterwards.
//
// A lease alone cannot keep a paused process from waking up beside the next holder. So what can be shown is this: with a store that compares
// fences the history of the data is linearizable, whatever is paused or killed, and with one that compares none it is not. A History shows
// both, and says which of these rules of docs/guarantees.md and docs/design.md it breaks:
//
//	S1 exclusion    two exclusive holders were certain of their leases at the same time
//	S1 readers      a reader, or the holder of a permit, was certain of its lease beside an exclusive holder
//	T9 degraded     a process let two callers work at the same time, of which one is exclusive, with a lease or without
//	P1 permits      more permits were held than one of their limits allows
//	S2 fences       a fence was not above those of earlier holders, or was given twice
//	C8 order        a request that came to the backend's queue later was served before one that stood there
//	S3 deadlines    a call had no answer by its deadline
//	linearizable    what was read and written is not what one caller after the other would have read and written
//
// # A journal
//
// Each process writes a file of its own, a JSON object per line, see Event. A line that announces a step is written before the step. So a
// process that is killed leaves an operation open, which may have been carried out or not. A last line without an end was never
// announced, and is left out. Lines of one call have its number, in this order:
//
//	ask      before the call: who asks for which key, as what, until when
//	queued   it has a place in the backend's queue. Only where the backend itself is noted: see Journal.Places
//	held     its function runs, with that fence. It has looked at its lease after the time of the line. Once more when it looks again
//	read     before the data is read, and got with the value, or refused if the store knows a later fence
//	write    before the data is written: the value read, and the new one. Then wrote, or refused
//	leave    before the lock is released. It has looked at its lease once more
//	back     the call has returned
//
// A line with the word fault is about a process: it was killed, stopped, or did not run for a while.
//
// `go test -artifacts` keeps the journals of a Run, and the pictures of what breaks a rule.
//
// # Time
//
// Times are nanoseconds of CLOCK_MONOTONIC, which all processes of one machine share and which is never stepped. CLOCK_REALTIME is, by NTP
// and by tests of clocks, and the monotonic part of a time.Time counts from the start of its process. So histories of one machine are
// compared exactly. Those of several machines are not.
//
// # When a holder is certain
//
// Its lease is certain from the first look at it after the grant, until the earlier of the release and the end of the lease as it
// was known at the last look. A caller that finds its lease lost was certain until its look before. So what is found is wrong on any
// machine, however busy.
package history
