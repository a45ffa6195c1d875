// Package sqllock keeps locks in a database that the application has already: PostgreSQL 13, MySQL 8, MariaDB 10.6, SQLite 3.35, or
// later. It imports database/sql only: the application brings the driver.
//
//	err := sqllock.Migrate(ctx, db, sqllock.PostgreSQL)             // once, or run the statements of sql/postgres.sql
//	backend, err := sqllock.New(db, sqllock.PostgreSQL)             // or sqllock/postgres.Open, /mysql.Open, /sqlite.Open
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// A lock is a row. Instances that wait for it, and readers that share it, are rows of a second table. Every change of a lock locks its row
// first, so the row is the one place where callers meet.
//
//	Enter ──▶ one statement: update the row if it is free and none is queued, or insert it ────▶ LEASE
//	            ▼ it was not                                                                       │ renewed, 4000 in a statement
//	          one short transaction: read row and queue, decide (decide.go), write ──▶ LEASE       │
//	            ▼                                                                                  ├─ Release: one statement
//	          PLACE: a row of the queue, kept by heartbeats                                        ▼
//	            └─ a look, one for all places, shows that it is our turn:                        LOST
//	               a transaction takes the lock ──▶ LEASE
//
// Waiters and holders occupy no connection and no transaction. Only the database's clock counts: no comparison there uses the client's.
// All that a process has to do at one time shares a statement: renewals, heartbeats, looks, releases.
//
// Waiters find a hand-over by polling, in a few milliseconds while the lock changes hands often. On PostgreSQL a Notifier pushes it.
//
// The pool may be small, and the application may use all of it. A call then waits for a connection within its own time, and returns
// distributed.ErrUnavailable if it gets none. With a pool of one connection, do not request a lock while you hold that connection.
package sqllock

// The rules of this package, which comments name where they are held. docs/design.md has those of all, and the words.
//
// D1. The lock's row is locked first, by the one statement that changes it, or by the transaction that reads the queue after that.
// Nothing is held while waiting or holding. What is decided is a plain function of row and queue.
//
// D2. The database's clock decides there, the client's never. A grant lasts W, a lease T, a place T/2, from when the statement ran. A
// statement that has waited for the row may have read the clock before. Then it takes less for expired than there is, and what it
// writes expires sooner. The holder counts from the sending (K4).
//
// D3. No request overtakes a waiter. A released lock is free, but while the row counts waiters only the first who lives may take it, or
// a run of readers at the head, with a statement of its own. A waiter whose heartbeats are overdue is removed by whoever comes across
// it.
//
// D4. A request has one effect. Its token, which is random, is the owner or a row of the queue, where a repeat finds it. What is left
// of it is removed by its token, and the row's lock orders that and its own taking.
//
// D5. What is due together shares statements (group commit): renewals and heartbeats, with those that come due soon, looks, releases. Grants and
// renewals are durable before they count. On PostgreSQL a release and a new place are not waited for on the disk: if a crash forgets a release, the
// lease ends by itself, and its fences are above those that were drawn. If it forgets a place, the waiter queues again. A later grant of the lock is
// behind both in the log.
//
// D6. A fence is never below the database's time in nanoseconds, and the row keeps the last one when its owner has left. A try of an enter
// that was not answered may be carried out late, after others have had the lock. So a late grant is given up if there was such a try, or looked at
// again.
//
// D7. The row of a lock goes when no caller waits for the lock or shares it, and all its times lie behind the clock by a reap age. They are
// that of its last use, the end of its owner's lease, and its fence. A new row begins at the clock. So fences go on, unless the clock is set back by more
// than that. Rows are read without a lock, and deleted by name in statements that ask again and leave out what others have locked. One process
// at a time does so, by turns. What was not old at the turn before stays: after a clock was set forward rows in use look old until renewed.
//
// D8. No right lasts longer than its TTL. One that seems to shows that the database's clock was set back. Whoever looks at it cuts it
// to its TTL: no other may come by.
//
// D9. Inspection is one statement and writes nothing. Break ends what was found: the leases of all holders, by their tokens, which no
// other lease ever has. Its transaction locks the row, moves the fence beyond their blocks, and keeps the record in the row, where a
// repeat finds it. It grants nothing: the head of the queue takes the lock as after a release. A holder finds at its next look that the
// row names another, or none.
//
// D10. A row that is kept locked costs its own lock only. A process that stands still in a transaction keeps it no longer than a
// second: the server bounds each, at no further round trip. A statement for several locks leaves that row out by itself, so nothing
// stays locked between two statements, and rounds of looks go on without it. At most a third of the calls that may be under way are for
// one lock. One worker, in one transaction, removes what is to be removed of it. So tries do not pile up in the server.
//
// D11. Permits: who may take the lock. A shared request may if the leases that are held and the requests before it are together fewer
// than its limit, and than the limit of each of these. So in whatever order they take the lock, those get it that a queue would let in
// one after the other (P1). Holders are counted under the row's lock, without those that have expired by the database's clock, and so
// before by their own (K4). The one statement takes a lock only if its row shows neither holder nor waiter. What an unanswered request
// may have counts until it is removed (D4). Holders beside the owner are renewed without the row's lock, so an answer that comes after
// their end renews nothing. A repeat of one that shares the lock gets new fences, for the row's latest may be another's.
//
// D12. Sessions and notifications are asked, not believed. A session of the pool tells, before the first grant, whether its settings
// would break a promise, and where the tables are. From then on statements name their schema. A server that refuses to write may be the
// primary no more, so the connections to it are closed. Hand-overs count as pushed while notifications of our own arrive.
//
// D13. A connection to SQLite belongs to its files, those that have the path when it is opened. Whoever opens them later does not meet
// those that have others open. So before a connection is used again it is asked whether the path still leads to the same files. If not
// it ends, and the next one finds the locks of the files that are there.
//
// D14. SQLite keeps its log beside the file. So a file is refused where others would find another log: it has two names, or is mounted
// without its directory. It is refused, too, where a user would create a log that the services cannot write. Whoever only looks creates
// nothing.
//
// D15. A detached lease is an owner like any other: its token follows from its id, and its TTL is how long it lasts. One transaction hands the
// row from one token to the other. What comes late or again finds in the row whose it is, and whoever has the other token, dead or alive,
// does not touch it. It ends by the clock, a Break, or who knows the id. It is exclusive, so no other shares the row.
