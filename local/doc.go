// Package local is the first tier of wllock: a fair queue per key inside one process.
//
// Each key has a turn, and the caller that has the turn runs next. Callers for one key queue for it, up to a limit. The
// turn carries a baton, a value of the queue's user that belongs to the key. The baton passes from caller to caller with
// the turn, so only the holder of the turn touches it.
//
//	Enter ──free──────────────▶ turn ──Pass/Leave──▶ the first waiter
//	  ├─queue full▶ ErrQueueFull
//	  └─▶ queue ──handed over──▶ turn ──Take──▶ leader of a batch
//	        ├─ctx, deadline, Close▶ error; at most sharers behind it are woken
//	        └─taken along by a leader▶ rider ──▶ the end of the batch
//
// The turn passes from caller to caller: it is never free while a caller waits, so a newcomer cannot barge in (as in
// golang.org/x/sync/semaphore). A shared turn first goes to one caller alone. When that caller calls Share, the shared callers behind
// it, up to the first exclusive one, enter beside it. Neither kind can starve the other, because all wait in the same queue.
//
// A caller may be a member of a group. The holder of the turn can then lead a batch: it takes along the waiters of its group that are
// next in the queue. They get no turn of their own, and learn when the batch has ended.
package local
