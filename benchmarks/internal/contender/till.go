package contender

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"

	"github.com/wllock/wllock/benchmarks/internal/server"
)

// till is an instance's database of the shop.
type till struct {
	database
	dialect
	together bool // the statements of an exchange go together; otherwise each waits for the answer to the one before
}

// dialect is what a shop says differently in each database.
type dialect struct {
	begin     query
	forUpdate string // ends a SELECT that locks its row
	orders    func(buyers []int64, fence uint64) query
}

var (
	postgresDialect = dialect{query{text: "BEGIN"}, " FOR UPDATE", func(buyers []int64, fence uint64) query {
		if len(buyers) == 1 {
			return write(`INSERT INTO bench_orders (product, buyer, fence) VALUES ($1, $2, $3)`, server.Product, buyers[0], int64(fence))
		}
		return write(`INSERT INTO bench_orders (product, buyer, fence) SELECT $1, buyer, $3 FROM unnest($2::bigint[]) AS buyer`,
			server.Product, buyers, int64(fence))
	}}
	sqliteDialect = dialect{query{text: "BEGIN IMMEDIATE"}, "", func(buyers []int64, fence uint64) query {
		args := make([]any, 0, 3*len(buyers))
		for _, buyer := range buyers {
			args = append(args, server.Product, buyer, int64(fence))
		}
		return write(`INSERT INTO bench_orders (product, buyer, fence) VALUES `+strings.Repeat(", (?, ?, ?)", len(buyers))[2:], args...)
	}}
	commit   = query{text: "COMMIT"}
	rollback = query{text: "ROLLBACK"}
)

func openPostgresTill(o Options, together bool) (*till, error) {
	db, err := openPostgres(o)
	return &till{db, postgresDialect, together}, err
}

// openSQLiteTill opens one where a COMMIT is on the disk when it returns.
func openSQLiteTill(o Options, together bool) (*till, error) {
	db, err := openSQL("sqlite", server.DurableSQLiteDSN(o.Addr), o)
	return &till{db, sqliteDialect, together}, err
}

// exchange sends statements, and fails with the first that fails.
type exchange func(all ...query) error

// on takes a connection, for which the caller waits while patience lasts. What then runs on it is not cut off; after an error it
// is rolled back.
func (t *till) on(patience context.Context, do func(exchange) error) error {
	s, err := t.acquire(patience)
	if err != nil {
		return err
	}
	defer s.release()
	ctx := context.WithoutCancel(patience)
	err = do(func(all ...query) error {
		if t.together {
			return s.together(ctx, all...)
		}
		return each(ctx, s, all...)
	})
	if err != nil {
		return errors.Join(err, s.send(ctx, rollback)) // SQLite fails if there is no transaction
	}
	return nil
}

var (
	errSoldOut   = errors.New("sold out")
	errOvertaken = errors.New("a later holder has claimed the product")
)

// way is a way to sell one piece without our lock. Semicolons stand between exchanges.
type way struct {
	name, settings string
	postgresOnly   bool
	sell           func(t *till, send exchange, buyer int64) error
}

var ways = []way{
	{"statement", "WITH piece AS (UPDATE ... WHERE qty > 0) INSERT ..., one statement", true, inOneStatement},
	{ManyRows, "the stock split over 16 rows; the same statement on one of them, chosen at random, and on the next where it is empty", true, inOneOfManyRows},
	{"conditional", "BEGIN, INSERT, UPDATE ... WHERE qty > 0; COMMIT", false, conditionally},
	{"FOR UPDATE", "BEGIN, SELECT ... FOR UPDATE; UPDATE, INSERT, COMMIT", false, pessimistically},
}

func (w way) on(s server.Store) string {
	if s == server.SQLite { // a transaction that begins IMMEDIATE has the lock of the whole file
		return strings.NewReplacer("BEGIN", "BEGIN IMMEDIATE", " FOR UPDATE", "", ";", ",").Replace(w.settings)
	}
	return w.settings + ", pipelined"
}

// ManyRows is the name of the way that splits the stock. It is beside what sells from one row, where a count of what is left, a
// limit per buyer or an order of arrival means something.
const ManyRows = "16 rows"

func inOneStatement(_ *till, send exchange, buyer int64) error {
	return send(oneStatement(server.Product, buyer))
}

func inOneOfManyRows(_ *till, send exchange, buyer int64) error {
	first := rand.N(server.Shelves)
	for n := range server.Shelves {
		err := send(oneStatement(server.Shelf((first+n)%server.Shelves), buyer))
		if !errors.Is(err, errNoRow) {
			return err
		}
	}
	return errSoldOut
}

func oneStatement(product string, buyer int64) query {
	return write(`WITH piece AS (UPDATE bench_stock SET qty = qty - 1 WHERE product = $1 AND qty > 0 RETURNING product)
		INSERT INTO bench_orders (product, buyer, fence) SELECT product, $2, 0 FROM piece`, product, buyer)
}

// conditionally writes the order first, so that the row of the stock is locked for the shortest time.
func conditionally(t *till, send exchange, buyer int64) error {
	err := send(t.begin, t.orders([]int64{buyer}, 0),
		write(`UPDATE bench_stock SET qty = qty - 1 WHERE product = $1 AND qty > 0`, server.Product))
	if err != nil {
		return orElse(errSoldOut, err)
	}
	return send(commit)
}

func pessimistically(t *till, send exchange, buyer int64) error {
	var left int64
	if err := send(t.begin, read(&left, `SELECT qty FROM bench_stock WHERE product = $1`+t.forUpdate, server.Product)); err != nil {
		return err
	}
	if left == 0 {
		return errSoldOut
	}
	return send(putStock(left-1), t.orders([]int64{buyer}, 0), commit)
}

// fenced sells one piece to each buyer, in one transaction. It claims the stock for the fence first.
func fenced(t *till, send exchange, fence uint64, buyers []int64) error {
	var left int64
	err := send(t.begin, read(&left, `UPDATE bench_stock SET fence = $1 WHERE product = $2 AND fence < $1 RETURNING qty`, int64(fence), server.Product))
	if err != nil {
		return orElse(errOvertaken, err)
	}
	if left < int64(len(buyers)) { // it is large enough for any round
		return errSoldOut
	}
	return send(t.orders(buyers, fence), putStock(left-int64(len(buyers))), commit)
}

func putStock(left int64) query {
	return write(`UPDATE bench_stock SET qty = $1 WHERE product = $2`, left, server.Product)
}

// orElse returns instead where no row was found.
func orElse(instead, err error) error {
	if errors.Is(err, errNoRow) {
		return instead
	}
	return err
}
