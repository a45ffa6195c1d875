package sqllock_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
)

func ExampleNew() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "locks")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sqlite.OpenDB("sqlite://" + filepath.Join(dir, "locks.db")) // or the application's own *sql.DB
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := sqllock.Migrate(ctx, db, sqllock.SQLite); err != nil {
		log.Fatal(err)
	}
	backend, err := sqllock.New(db, sqllock.SQLite)
	if err != nil {
		log.Fatal(err)
	}
	locker, err := wllock.New("shop", backend, wllock.WithOwnedBackend())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locker.Close(ctx) }()
	err = locker.Do(ctx, "product", "1000", func(context.Context) error {
		fmt.Println("one at a time")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: one at a time
}

func ExampleDDL() {
	statements, err := sqllock.DDL(sqllock.PostgreSQL, sqllock.WithSchema("locks"), sqllock.WithTable("shop"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(statements), "statements for a migration of your own")
	// Output: 5 statements for a migration of your own
}
