// Package sqlshop is the shop of the flash sale on a database that is already there: SQLite, MariaDB, MySQL or PostgreSQL.
// It has five ways not to oversell, and the one that does.
//
// Read order.go first: each way is one function. batch.go serves many buyers in one transaction. A visit goes this way:
//
//	buyer ─▶ connection from the pool ─▶ read ─▶ think ─▶ write the stock and the order, in one transaction ─▶ answer
//	          (patience ends here)                         (repeated after a deadlock or a conflict, a bounded number of times)
//
// Everything that differs between the databases is in dialect.go. The package creates two tables, flashsale_stock and
// flashsale_orders, and touches no other. SQLite's driver comes with it; those of servers are the program's, which imports
// github.com/go-sql-driver/mysql and github.com/jackc/pgx/v5/stdlib.
package sqlshop
