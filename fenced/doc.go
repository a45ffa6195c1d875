// Package fenced has a database refuse the writes of a caller that lost its lock without knowing it.
//
// A process that is paused for longer than its lease goes on writing when it wakes up, beside the next holder. Each hold has a fence, a
// number that grows from holder to holder. A Guard compares it in the database, in the transaction that writes:
//
//	guard, err := fenced.New(db, fenced.PostgreSQL)
//	err = guard.Migrate(ctx) // once: the table of fences
//	...
//	err = locker.Do(ctx, "product", "1000", func(ctx context.Context) error {
//		return guard.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { // BEGIN, claim, the function, COMMIT
//			_, err := tx.ExecContext(ctx, `UPDATE stock SET qty = qty - 1 WHERE id = $1`, "1000")
//			return err
//		})
//	})
//
// # What it guarantees
//
// Transactions that claim a key are in the order of its fences. A caller whose lock a later holder has claimed gets ErrFenced, and its
// function does not run. What a transaction reads includes all that earlier ones of that key have committed. This holds at READ COMMITTED,
// REPEATABLE READ and SERIALIZABLE, and it needs no clock. Writes outside of a claimed transaction are not checked.
//
// # How
//
// The claim is one statement on a table of the package's own, with a row per key: the last fence of a writer and of a reader. An
// exclusive holder claims if no later holder has. A shared one claims if no later exclusive one has. The row stays locked until the
// transaction ends, so the next holder's claim waits for the commit, also if the lease ends in the middle of it. Transactions of the
// readers of one key thus follow each other.
//
// # A process that stands still inside its transaction
//
// It would keep the row from the next holder. So the transaction ends in the database, too, at about the time when the lease does:
//
//   - PostgreSQL ends a session that is idle inside the transaction, and a statement, after what was left of the lease at the claim,
//     and at least a second. A new lease lasts for half of its TTL. A lower setting of the session stays. For longer statements see
//     WithLongestStatement.
//   - MySQL and MariaDB have no such settings for one transaction. There the next holder's Guard ends the session of the earlier one when
//     it has waited for half a second. It needs a second connection for that. A user may end sessions of its own without any right.
//   - SQLite: nothing can take the file's lock from a process that stands still, and all writers wait for it.
package fenced
