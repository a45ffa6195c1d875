// Package local is the first tier of wllock: a keyed fair queue inside one process.
//
// For each key there is a turn, and whoever has it goes next. Callers for one key stand in a line; beyond a limit nobody
// joins it. The turn carries a baton, a value of the queue's user that belongs to the key: it passes from caller to
// caller with the turn, so only the one who has the turn touches it.
//
//	Enter ──free──────────────▶ turn ──Pass/Leave──▶ the first of the line
//	  ├─line too long▶ ErrQueueFull
//	  └─▶ line ──handed over──▶ turn
//	        └─ctx, deadline, Close▶ error; nobody else is woken
//
// The turn is handed over, not put up for grabs: it never is free while somebody waits, so a newcomer cannot get in
// between (as in golang.org/x/sync/semaphore). A shared turn is first given to one caller alone; when that one calls
// Share, the shared callers behind it, up to the first exclusive one, come in beside it. Neither kind can starve the
// other, because all stand in the same line.
package local
