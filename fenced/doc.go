// Package fenced makes a database refuse the writes of a caller that lost its lock without noticing.
//
// A process that is paused for longer than its lease continues to write when it wakes up, while the next holder writes, too. Each hold has a
// fence, a number that grows from holder to holder. A Guard compares it in the database, in the transaction that writes:
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
// Transactions that claim a key are in the order of its fences. If a later holder has claimed the lock, an earlier one gets ErrFenced, and
// its function does not run. A transaction reads all that earlier transactions of that key have committed. This holds at READ COMMITTED,
// REPEATABLE READ and SERIALIZABLE, and it needs no clock. Writes outside of a claimed transaction are not checked.
//
// # How
//
// The claim is one statement on a table of the package's own, with a row per key: the last fence of a writer and of a reader. The claim of
// an exclusive holder succeeds if no later holder has claimed, and that of a shared holder if no later exclusive one has. The row stays
// locked until the transaction ends, so the next holder's claim waits for the commit, even if the lease ends in the middle of it. So the
// transactions of the readers of one key also run one after the other.
//
// # A process that is paused inside its transaction
//
// It would keep the row from the next holder. So the database ends the transaction at about the time when the lease ends:
//
//   - PostgreSQL ends a session that is idle inside the transaction, and a statement, after the time that was left of the lease at the
//     claim, but at least a second. A new lease lasts for half of its TTL. A lower setting of the session stays. For longer statements see
//     WithLongestStatement.
//   - MySQL and MariaDB have no such settings for one transaction. There the next holder's Guard ends the session of the earlier holder when
//     it has waited for half a second. It needs a second connection for that. A user may end sessions of its own without any right.
//   - SQLite cannot take the file's lock from a paused process, so all writers wait for it.
package fenced
