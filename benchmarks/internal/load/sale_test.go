package load

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/benchmarks/internal/contender"
	"github.com/wllock/wllock/benchmarks/internal/server"
	"github.com/wllock/wllock/internal/testscope"
)

var smallSale = Scenario{Name: "test", Instances: 2, Workers: 4, Sale: true, Fences: true}

func withSQLite(t *testing.T) Machine {
	t.Helper()
	needRedis(t)
	return with(t, server.Redis, server.SQLite)
}

func TestEverySellersBooksAreRight(t *testing.T) {
	testscope.Long(t, "plays whole sales or runs")
	m := withSQLite(t)
	seen := 0
	for _, c := range contender.All() {
		if c.Group != contender.OverBatch || c.Store != server.SQLite || c.Variant && c.Setting != "pool 4" {
			continue
		}
		seen++
		r := runUntilSome(t, m, c, smallSale)
		require.NotNil(t, r.Books, c.Name)
		assert.Positive(t, r.Ops, c.Name)
		assert.Zero(t, r.Failed, "%s: %s", c.Name, r.Failure)
		assert.Zero(t, r.Violations, c.Name)
		assert.Zero(t, r.FencesFallen, c.Name)
		assert.Equal(t, r.Told, r.Books.Sold, c.Name)
		assert.Equal(t, c.Fenced, r.Fences == r.Told, c.Name)
		assert.GreaterOrEqual(t, r.Told, r.Ops, "those of the warm-up as well")
	}
	assert.Equal(t, 3+1+2*2, seen, "batches, one by one, and two ways with two of four pools")
}

// A liar passes most buyers on, and answers one in ten itself.
func TestTheAuditFindsWhatBuyersWereToldWrongly(t *testing.T) {
	m := withSQLite(t)
	for name, answer := range map[string]func(sell func() error) error{
		"sold without an order": func(func() error) error { return nil },
		"an order untold":       func(sell func() error) error { return errors.Join(sell(), errors.New("the answer was lost")) },
	} {
		for _, c := range contender.All() {
			if c.Group != contender.OverBatch || c.Store != server.SQLite || c.Name != contender.Guard {
				continue
			}
			honest, n := c.Open, new(atomic.Int64)
			c.Open = func(o contender.Options) (contender.Instance, error) {
				in, err := honest(o)
				sell := in.Sell
				in.Sell = func(ctx context.Context, buyer int64) error {
					if n.Add(1)%10 == 0 {
						return answer(func() error { return sell(ctx, buyer) })
					}
					return sell(ctx, buyer)
				}
				return in, err
			}
			r, err := m.Run(t.Context(), c, smallSale, Loopback, 100*time.Millisecond)
			require.NoError(t, err)
			assert.Positive(t, r.Violations, name)
		}
	}
}

func TestScenariosChooseTheirContenders(t *testing.T) {
	s := Scenario{In: []server.Store{server.SQLite}, Only: []string{contender.Guard}}
	assert.True(t, s.Has(contender.Contender{Name: contender.Guard, Store: server.SQLite}))
	assert.False(t, s.Has(contender.Contender{Name: contender.Guard, Store: server.Postgres}))
	assert.False(t, s.Has(contender.Contender{Name: "conditional", Store: server.SQLite}))
	assert.True(t, s.Has(contender.Contender{Name: "ideal", Role: contender.Limit, Store: server.SQLite}))
	assert.True(t, Scenario{}.Has(contender.Contender{Name: "any"}))
}

func TestASlowLinkIsPutIntoAURL(t *testing.T) {
	assert.Equal(t, "127.0.0.1:5432", host("postgres://u:p@127.0.0.1:5432/shop?sslmode=disable"))
	assert.Equal(t, "127.0.0.1:6379", host("127.0.0.1:6379"))
}
