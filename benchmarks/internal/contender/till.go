package contender

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"

	"github.com/wllock/wllock/benchmarks/internal/server"
)

// till is an instance's pool of connections to the shop's database.
type till interface {
	// on takes a connection, for which the caller waits while patience lasts. What then runs on it is not cut off; after an error it
	// is rolled back.
	on(patience context.Context, do func(exchange) error) error
	begin() query
	forUpdate() string // ends a SELECT that locks its row
	addOrders(buyers []int64, fence uint64) query
	Close() error
}

// exchange sends statements together, in one round trip where there is a server, and fails with the first that fails.
type exchange func(all ...query) error

// query is a statement. errNoRow: a read has found nothing, or a write has changed nothing.
type query struct {
	text  string
	args  []any
	read  *int64 // where the value of its row goes; nil: it has none
	write bool   // it must change a row
}

var commit = query{text: "COMMIT"}

func write(text string, args ...any) query { return query{text: text, args: args, write: true} }

func read(to *int64, text string, args ...any) query { return query{text: text, args: args, read: to} }

var (
	errNoRow     = errors.New("no row")
	errSoldOut   = errors.New("sold out")
	errOvertaken = errors.New("a later holder has claimed the product")
)

// way is a way to sell one piece without our lock. Semicolons stand between exchanges.
type way struct {
	name, settings string
	postgresOnly   bool
	sell           func(ctx context.Context, t till, buyer int64) error
}

var ways = []way{
	{"statement", "WITH piece AS (UPDATE ... WHERE qty > 0) INSERT ..., one statement", true, inOneStatement},
	{ManyRows, "the stock split over 16 rows; the same statement on one of them, chosen at random, and on the next where it is empty", true, inOneOfManyRows},
	{"conditional", "BEGIN, INSERT, UPDATE ... WHERE qty > 0; COMMIT", false, conditionally},
	{"FOR UPDATE", "BEGIN, SELECT ... FOR UPDATE; UPDATE, INSERT, COMMIT", false, pessimistically},
}

func (w way) on(module string) string {
	if module == sqliteModule { // a transaction that begins IMMEDIATE has the lock of the whole file
		return strings.NewReplacer("BEGIN", "BEGIN IMMEDIATE", " FOR UPDATE", "", ";", ",").Replace(w.settings)
	}
	return w.settings + ", pipelined"
}

// ManyRows is the name of the way that splits the stock. It is beside what sells from one row, where a count of what is left, a
// limit per buyer or an order of arrival means something.
const ManyRows = "16 rows"

func inOneStatement(ctx context.Context, t till, buyer int64) error {
	return t.on(ctx, func(send exchange) error { return send(oneStatement(server.Product, buyer)) })
}

func inOneOfManyRows(ctx context.Context, t till, buyer int64) error {
	return t.on(ctx, func(send exchange) error {
		first := rand.N(server.Shelves)
		for n := range server.Shelves {
			err := send(oneStatement(server.Shelf((first+n)%server.Shelves), buyer))
			if !errors.Is(err, errNoRow) {
				return err
			}
		}
		return errSoldOut
	})
}

func oneStatement(product string, buyer int64) query {
	return write(`WITH piece AS (UPDATE bench_stock SET qty = qty - 1 WHERE product = $1 AND qty > 0 RETURNING product)
		INSERT INTO bench_orders (product, buyer, fence) SELECT product, $2, 0 FROM piece`, product, buyer)
}

// conditionally writes the order first, so that the row of the stock is locked for the shortest time.
func conditionally(ctx context.Context, t till, buyer int64) error {
	return t.on(ctx, func(send exchange) error {
		err := send(t.begin(), t.addOrders([]int64{buyer}, 0),
			write(`UPDATE bench_stock SET qty = qty - 1 WHERE product = $1 AND qty > 0`, server.Product))
		if err != nil {
			return orElse(errSoldOut, err)
		}
		return send(commit)
	})
}

func pessimistically(ctx context.Context, t till, buyer int64) error {
	return t.on(ctx, func(send exchange) error {
		var left int64
		if err := send(t.begin(), read(&left, `SELECT qty FROM bench_stock WHERE product = $1`+t.forUpdate(), server.Product)); err != nil {
			return err
		}
		if left == 0 {
			return errSoldOut
		}
		return send(putStock(left-1), t.addOrders([]int64{buyer}, 0), commit)
	})
}

// sellFenced sells one piece to each buyer, in one transaction. It claims the stock for the fence first.
func sellFenced(ctx context.Context, t till, fence uint64, buyers []int64) error {
	return t.on(ctx, func(send exchange) error {
		var left int64
		err := send(t.begin(), read(&left, `UPDATE bench_stock SET fence = $1 WHERE product = $2 AND fence < $1 RETURNING qty`, int64(fence), server.Product))
		if err != nil {
			return orElse(errOvertaken, err)
		}
		if left < int64(len(buyers)) { // it is large enough for any round
			return errSoldOut
		}
		return send(t.addOrders(buyers, fence), putStock(left-int64(len(buyers))), commit)
	})
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
