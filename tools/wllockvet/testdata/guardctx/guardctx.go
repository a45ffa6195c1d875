// Package guardctx has guarded functions that work with a context of theirs, or with another one.
package guardctx

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/wllock/wllock"
)

type shop struct {
	locker *wllock.Locker
	db     *sql.DB
	ctx    context.Context // of the program
	log    traceLogger
}

func (s *shop) sell(ctx context.Context, id string) error {
	_, err := s.db.ExecContext(ctx, "UPDATE stock SET qty = qty - 1 WHERE id = $1", id)
	return err
}

func (s *shop) capturesTheCallers(ctx context.Context, id string) error {
	return s.locker.Do(ctx, "product", id, func(context.Context) error {
		return s.sell(ctx, id) // want `ctx is from outside of the guarded function and does not end when the lock is lost: s.sell goes on while another process holds the lock. Name the function's own context and pass that`
	})
}

func (s *shop) callsItOtherwise(outer context.Context, id string) error {
	return s.locker.Do(outer, "product", id, func(ctx context.Context) error {
		if err := s.sell(ctx, id); err != nil {
			return err
		}
		return s.sell(outer, id) // want `outer is from outside .* Pass ctx`
	})
}

func (s *shop) derivesFromOutside(outer context.Context, id string) (left int, err error) {
	return wllock.Call(outer, s.locker, "product", id, func(ctx context.Context) (left int, err error) {
		short, cancel := context.WithTimeout(outer, time.Second) // want `outer is from outside .* what is called with the result of context.WithTimeout goes on`
		defer cancel()
		err = s.db.QueryRowContext(short, "SELECT qty FROM stock WHERE id = $1", id).Scan(&left)
		return left, err
	})
}

func (s *shop) scansWithOutside(outer context.Context, id string) error {
	return s.locker.DoAll(outer, []wllock.Resource{{Name: "product", Key: id}}, func(ctx context.Context) error {
		var left int
		return s.db.QueryRowContext(outer, "SELECT 1").Scan(&left) // want `outer is from outside`
	})
}

func (s *shop) handlesWithTheRequests(w http.ResponseWriter, r *http.Request) {
	err := s.locker.Do(r.Context(), "product", r.PathValue("id"), func(ctx context.Context) error {
		return s.sell(r.Context(), r.PathValue("id")) // want `r.Context\(\) is from outside of the guarded function`
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

func (s *shop) leadsForTheProgram(ctx context.Context) error {
	return s.locker.Lead(ctx, "leader", "outbox", func(ctx context.Context) error {
		return s.sell(s.ctx, "1") // want `s.ctx is from outside`
	})
}

func (s *shop) nestsWithOutside(outer context.Context) error {
	return s.locker.Do(outer, "order", "1", func(ctx context.Context) error {
		return s.locker.Do(outer, "product", "1", func(ctx context.Context) error { // want `outer is from outside .* s.locker.Do goes on`
			return s.sell(ctx, "1")
		})
	})
}

func (s *shop) usesTheOuterLocks(ctx context.Context) error {
	return s.locker.Do(ctx, "order", "1", func(order context.Context) error {
		return s.locker.Do(order, "product", "1", func(product context.Context) error {
			return s.sell(order, "1") // want `order is from outside .* Pass product`
		})
	})
}

func (s *shop) keepsALiteral(ctx context.Context) wllock.Func {
	sell := func(context.Context) error {
		return s.sell(ctx, "1") // want `ctx is from outside`
	}
	return s.locker.Guard("product", "1", sell)
}

func (s *shop) background(ctx context.Context) error {
	return s.locker.Do(ctx, "product", "1", func(_ context.Context) error { // want `the guarded function ignores its own context, which ends when the lock is lost: s.sell goes on while another process holds the lock. Name the context and pass it on`
		return s.sell(context.Background(), "1")
	})
}

func (s *shop) report(_ context.Context) error { // want `the guarded function ignores its own context`
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.sell(ctx, "1")
}

func (s *shop) tick(ctx context.Context) error {
	return s.locker.Do(ctx, "cron", "report", s.report, wllock.NoWait())
}

func (s *shop) batch() func(context.Context, string) (int, error) {
	return wllock.WrapBatch(s.locker, "product", func(id string) string { return id },
		func(_ context.Context, batch []*wllock.Item[string, int]) error { // want `ignores its own context`
			for _, item := range batch {
				item.Err = s.sell(item.Context(), item.Arg)
			}
			return nil
		})
}

func (s *shop) fenceFromOutside(outer context.Context) error {
	return s.locker.Do(outer, "product", "1", func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(outer) // want `HeldFrom\(outer\) does not find the lock of this guarded function, because outer is from outside of it: it returns an outer lock, or nil. Pass ctx`
		fmt.Println(held.Fence())
		return s.sell(ctx, "1")
	})
}

// From here on nothing is wrong.

func (s *shop) passesItsOwn(ctx context.Context, id string) error {
	return s.locker.Do(ctx, "product", id, func(ctx context.Context) error { return s.sell(ctx, id) })
}

func (s *shop) looksOutside(outer context.Context) error {
	return s.locker.Do(outer, "product", "1", func(ctx context.Context) error {
		if outer.Err() != nil {
			return context.Cause(outer)
		}
		slog.InfoContext(outer, "selling")
		if err := s.log.Log(outer, "selling"); err != nil {
			return err
		}
		fmt.Println(user(outer), sessionFrom(outer), outer.Value("trace"))
		return s.sell(ctx, "1")
	})
}

type session struct{}

func (session) Err() error { return nil }

func sessionFrom(ctx context.Context) session { return ctx.Value("session").(session) }

type traceLogger struct{}

func (traceLogger) Log(context.Context, string) error { return nil }

func user(ctx context.Context) string { return ctx.Value("user").(string) }

func (s *shop) leavesWorkBehind(outer context.Context) error {
	return s.locker.Do(outer, "product", "1", func(ctx context.Context) error {
		go s.sell(outer, "audit")
		go func() { _ = s.sell(outer, "audit") }()
		defer s.sell(outer, "undo")
		defer context.AfterFunc(ctx, func() { _ = s.sell(outer, "undo") })()
		stop := context.AfterFunc(ctx, func() { _ = s.sell(outer, "undo") })
		defer stop()
		return s.sell(ctx, "1")
	})
}

func (s *shop) mustFinish(outer context.Context) error {
	return s.locker.Do(outer, "product", "1", func(context.Context) error {
		return s.sell(context.WithoutCancel(outer), "1")
	})
}

func (s *shop) cleansUp(outer context.Context) error {
	return s.locker.Do(outer, "product", "1", func(ctx context.Context) error {
		if err := s.sell(ctx, "1"); err != nil {
			return s.sell(context.Background(), "undo")
		}
		return nil
	})
}

func (s *shop) replacesTheRequest(r *http.Request) error {
	return s.locker.Do(r.Context(), "product", "1", func(ctx context.Context) error {
		r = r.WithContext(ctx)
		return s.sell(r.Context(), "1")
	})
}

func (s *shop) handsOut(outer context.Context) error {
	var inside context.Context
	return s.locker.Do(outer, "product", "1", func(ctx context.Context) error {
		inside = ctx
		return s.sell(inside, "1")
	})
}

func (s *shop) joins(outer context.Context) error {
	return s.locker.Do(outer, "product", "1", func(ctx context.Context) error {
		both, err := join(ctx, outer)
		if err != nil {
			return err
		}
		return s.sell(both, "1")
	})
}

func join(a, _ context.Context) (context.Context, error) { return a, nil }

func (s *shop) needsNone(ctx context.Context, n *int) error {
	return s.locker.Do(ctx, "product", "1", func(context.Context) error {
		*n++
		return nil
	})
}

func (s *shop) fallsBack(outer context.Context) func(context.Context, string) (int, error) {
	return wllock.WrapOr(s.locker, "product", func(id string) string { return id },
		func(ctx context.Context, id string) (int, error) { return 0, s.sell(ctx, id) },
		func(_ context.Context, id string, _ error) (int, error) { return 0, s.sell(outer, id) }) // it holds nothing
}

func (s *shop) fenceOfTheOuterLock(ctx context.Context) error {
	return s.locker.Do(ctx, "order", "1", func(order context.Context) error {
		return s.locker.Do(order, "product", "1", func(product context.Context) error {
			held, _ := wllock.HeldFrom(order)
			fmt.Println(held.Fence())
			return s.sell(product, "1")
		})
	})
}

type Locker struct{} // of this package

func (Locker) Do(ctx context.Context, name, key string, fn func(context.Context) error) error {
	return fn(ctx)
}

func (s *shop) anothersDo(ctx context.Context) error {
	return Locker{}.Do(ctx, "product", "1", func(context.Context) error { return s.sell(ctx, "1") })
}
