// Package sqllock keeps locks in a database that is there already: PostgreSQL 13, MySQL 8, MariaDB 10.6, SQLite 3.35, or later
// ones. It knows database/sql only: the application brings the driver.
//
//	err := sqllock.Migrate(ctx, db, sqllock.PostgreSQL)             // once, or run the statements of sql/postgres.sql
//	backend, err := sqllock.New(db, sqllock.PostgreSQL)             // or sqllock/postgres.Open, /mysql.Open, /sqlite.Open
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// A lock is a row. Instances that wait for it, and readers that share it, are rows of a second table. Every change of a lock locks
// its row first, so the row is the one place where callers meet.
//
//	Enter ──▶ one statement: update the row if it is free and nobody is queued, or insert it ──▶ LEASE
//	            ▼ it was not                                                                       │ renewed, 4000 in a statement
//	          one short transaction: read row and queue, decide (decide.go), write ──▶ LEASE       │
//	            ▼                                                                                  ├─ Release: one statement
//	          PLACE: a row of the queue, kept by heartbeats                                        ▼
//	            └─ a look, one for all places, shows that it is our turn:                        LOST
//	               a transaction takes the lock ──▶ LEASE
//
// Nothing is held while waiting or holding: no connection, no transaction. The clock is the database's: the client's never enters
// a comparison there. All that a process has to do at one time shares a statement: renewals, heartbeats, looks, releases.
//
// A hand-over is found by polling, in a few milliseconds while the lock changes hands often. On PostgreSQL a Notifier makes it a push.
//
// The pool may be small, and the application may use all of it. A call then waits for a connection within its own time, and
// returns distributed.ErrUnavailable: with a pool of one connection, do not ask for a lock while you hold that connection.
package sqllock
