package sqlshop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type way = func(s *Shop, ctx context.Context, product, buyer string) error

func TestEachWaySellsUntilNothingIsLeft(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		eachWay(t, func(t *testing.T, _ string, order way) {
			s := create(t, url, 2, atOnce)
			require.NoError(t, order(s, t.Context(), "p", "a"))
			require.NoError(t, order(s, t.Context(), "p", "b"))
			require.ErrorIs(t, order(s, t.Context(), "p", "c"), ErrSoldOut)
			s.expect(t, Audit{Sold: 2, OutOfOrder: 2}) // without a lock there are no fences
		})
	})
}

// meeting is a think that two orders leave together, if two can be in it: the first waits for the second for a while.
type meeting struct {
	second   chan struct{}
	mu       sync.Mutex
	arrivals int // guarded by mu
}

func newMeeting() *meeting { return &meeting{second: make(chan struct{})} }

// alone is how long the first waits. Where two orders can think at once, it is never waited for.
const alone = 500 * time.Millisecond

func (m *meeting) think(ctx context.Context) error {
	m.mu.Lock()
	m.arrivals++
	if m.arrivals == 2 {
		close(m.second)
	}
	m.mu.Unlock()
	select {
	case <-m.second:
	case <-time.After(alone):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// none must oversell when two orders have read the same stock, so that the audit of the others means something. With the
// same interleaving, they must not.
func TestTwoOrdersThatReadTheSameStock(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		eachWay(t, func(t *testing.T, way string, order way) {
			s := create(t, url, 1, newMeeting().think)
			answers := make([]error, 2)
			var both sync.WaitGroup
			for i := range answers {
				both.Go(func() { answers[i] = order(s, t.Context(), "p", fmt.Sprint(i)) })
			}
			both.Wait()
			if way == "none" {
				assert.Equal(t, []error{nil, nil}, answers)
				s.expect(t, Audit{Sold: 2, OutOfOrder: 2})
				return
			}
			assert.ErrorIs(t, errors.Join(answers...), ErrSoldOut)
			assert.True(t, answers[0] == nil || answers[1] == nil, answers)
			s.expect(t, Audit{Sold: 1, OutOfOrder: 1})
		})
	})
}

// Two shops are two processes, each with a pool.
func TestManyBuyersOfTwoShops(t *testing.T) {
	const buyers, stock = 30, 20
	onEach(t, func(t *testing.T, url string) {
		for _, way := range []string{"optimistic", "pessimistic", "statement"} {
			t.Run(way, func(t *testing.T) {
				s := create(t, url, stock, atOnce)
				var mu sync.Mutex
				told := 0
				var all sync.WaitGroup
				for i, shop := range []*Shop{s, open(t, url, atOnce)} {
					for b := range buyers {
						all.Go(func() {
							err := ways[way](shop, t.Context(), "p", fmt.Sprint(i, b))
							mu.Lock()
							defer mu.Unlock()
							if err == nil {
								told++
							} else {
								assert.ErrorIs(t, err, ErrSoldOut)
							}
						})
					}
				}
				all.Wait()
				assert.Equal(t, stock, told)
				s.expect(t, Audit{Sold: stock, OutOfOrder: stock})
			})
		}
	})
}

func TestAuditSeesFencesOutOfOrder(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := create(t, url, 5, atOnce)
		for _, fence := range []int64{3, 5, 5, 4, 6, 0} {
			require.NoError(t, s.whole(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				return s.sell(ctx, tx, order{"p", fence, []string{"a"}}, nil, writeStock, 5, "p")
			}))
		}
		s.expect(t, Audit{Sold: 6, Left: 5, OutOfOrder: 3, Fallen: 2})
	})
}

// A buyer that has no patience left while all connections are in use is refused, and nothing is written.
func TestPatienceEndsInFrontOfTheConnections(t *testing.T) {
	refused := errors.New("try later")
	onEach(t, func(t *testing.T, url string) {
		eachWay(t, func(t *testing.T, _ string, order way) {
			s := create(t, url, 1, atOnce)
			for range s.pool {
				c, err := s.db.Conn(t.Context())
				require.NoError(t, err)
				defer c.Close()
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, refused)
			defer cancel()
			require.ErrorIs(t, order(s, ctx, "p", "a"), refused)
		})
	})
}

// A transaction that has begun is not cut off: it would be unknown whether its COMMIT was executed.
func TestPatienceEndsNoTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		ctx, cancel := context.WithCancel(t.Context())
		s := create(t, url, 1, atOnce)
		require.NoError(t, s.whole(ctx, func(ctx context.Context, tx *sql.Tx) error {
			cancel()
			return s.sell(ctx, tx, order{"p", 0, []string{"a"}}, nil, writeStock, 1, "p")
		}))
		s.expect(t, Audit{Sold: 1, Left: 1, OutOfOrder: 1})
	})
}

func TestBatchFenced(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := create(t, url, 70, atOnce)
		ctx, buyers := t.Context(), make([]string, 64)
		for i := range buyers {
			buyers[i] = fmt.Sprint(i)
		}
		before := s.Statements.Load()
		sold, err := s.BatchFenced(ctx, "p", buyers, 7)
		require.NoError(t, err)
		assert.Equal(t, 64, sold)
		assert.LessOrEqual(t, s.Statements.Load()-before, int64(6), "claim, BEGIN, UPDATE, INSERT, COMMIT; MySQL reads after the claim")
		_, err = s.BatchFenced(ctx, "p", buyers, 7)
		require.ErrorIs(t, err, ErrStaleFence, "a fence is a batch's own")
		sold, err = s.BatchFenced(ctx, "p", buyers, 8)
		require.NoError(t, err)
		assert.Equal(t, 6, sold, "the first of them")
		sold, err = s.BatchFenced(ctx, "p", buyers, 9)
		require.ErrorIs(t, err, ErrSoldOut)
		assert.Zero(t, sold)
		s.expect(t, Audit{Sold: 70, OutOfOrder: 68})
		var last string
		require.NoError(t, s.db.QueryRowContext(ctx, `SELECT buyer FROM flashsale_orders ORDER BY id DESC LIMIT 1`).Scan(&last))
		assert.Equal(t, "5", last, "in the order of the batch")
	})
}

// A batch that is paused after its claim must not write when it wakes up: another one has read the stock. So it is with a single order,
// which is a batch of one.
func TestABatchThatWasOvertakenChangesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		var s *Shop
		overtaken := false
		s = create(t, url, 5, func(ctx context.Context) error {
			if overtaken {
				return nil
			}
			overtaken = true
			_, err := s.BatchFenced(ctx, "p", []string{"next", "one more"}, 2)
			return err
		})
		sold, err := s.BatchFenced(t.Context(), "p", []string{"paused"}, 1)
		require.ErrorIs(t, err, ErrStaleFence)
		assert.Zero(t, sold)
		s.expect(t, Audit{Sold: 2, Left: 3, OutOfOrder: 1})
	})
}
