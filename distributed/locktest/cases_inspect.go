package locktest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wllock/wllock/distributed"
)

var inspectCases = []Case{
	{"inspect names the holder and the queue in order", func(e *env, key string) {
		e.inspector()
		m := []*member{e.member(), e.member(), e.member(), e.member()}
		l := m[0].lease(key)
		fence := e.fence(l)
		places := []distributed.Place{m[1].place(key), m[2].place(key, shared), m[3].place(key)}
		found := e.inspect(key)
		if len(found.Holders) != 1 || found.Holders[0].Instance != e.called(m[0]) || found.Mode != distributed.Exclusive ||
			found.Foreign || found.MoreHolders > 0 {
			e.Fatalf("Inspect found %+v; want the holder %q, exclusive", found, e.called(m[0]))
		}
		if h := found.Holders[0]; h.Left < 0 || h.Left > long {
			e.Errorf("the lease lasts for %v; want up to %v, or 0, not known", h.Left, long)
		}
		if found.Fence != 0 && found.Fence < fence {
			e.Errorf("the fence is %d, below the holder's %d", found.Fence, fence)
		}
		e.recent("held", found.Since)
		want := []distributed.Waiter{{Instance: e.called(m[1])}, {Instance: e.called(m[2]), Mode: distributed.Shared}, {Instance: e.called(m[3])}}
		for i := range found.Waiters {
			e.recent("queued", found.Waiters[i].Since)
			found.Waiters[i].Since = time.Time{}
		}
		if !slices.Equal(found.Waiters, want) || found.MoreWaiters > 0 {
			e.Errorf("the queue is %+v and %d more; want %+v", found.Waiters, found.MoreWaiters, want)
		}
		e.passOn(l, places...)
	}},
	{"inspect names the readers", func(e *env, key string) {
		e.inspector()
		a, b, w := e.member(), e.member(), e.member()
		leases := []distributed.Lease{a.lease(key, shared), b.lease(key, shared)}
		p := w.place(key)
		found := e.inspect(key)
		var names []string
		for _, h := range found.Holders {
			names = append(names, h.Instance)
		}
		slices.Sort(names)
		want := []string{e.called(a), e.called(b)}
		slices.Sort(want)
		if !slices.Equal(names, want) || found.Mode != distributed.Shared {
			e.Errorf("Inspect found %q, %s; want %q, shared", names, found.Mode, want)
		}
		if want := " and 1 more"; len(found.Holder()) <= len(want) || found.Holder()[len(found.Holder())-len(want):] != want {
			e.Errorf("the holder is %q; want one%s", found.Holder(), want)
		}
		if len(found.Waiters) != 1 || found.Waiters[0].Instance != e.called(w) {
			e.Errorf("the queue is %+v; want %q", found.Waiters, w.name)
		}
		e.release(leases...)
		e.release(e.granted(p))
	}},
	{"inspect of a free key finds nothing and leaves nothing", func(e *env, key string) {
		m := e.member()
		for range 2 { // never used, and used before
			found := e.inspect(key)
			if found.Held() || found.Foreign || len(found.Waiters) > 0 || found.Broken != nil {
				e.Fatalf("Inspect found %+v; want nothing", found)
			}
			if page := e.list(e.prefix, 10); len(page) > 0 {
				e.Fatalf("List found %+v; want nothing", page)
			}
			e.release(m.lease(key, noWait))
		}
	}},
	{"inspect changes nothing", func(e *env, key string) {
		e.inspector()
		l := e.member().lease(key)
		last := e.fence(l)
		for range 5 {
			e.inspect(key)
			e.list(e.prefix, 10)
			if l.Contended() {
				e.Fatalf("the lease is contended by an inspection")
			}
			last = e.above(last, e.fence(l))
		}
		p := e.member().place(key)
		e.inspect(key)
		e.waiting(p)
		e.held(key, l)
		e.release(l)
		next := e.granted(p)
		e.above(last, e.fence(next))
		e.release(next)
	}},
	{"list finds every key of a prefix, page by page", func(e *env, _ string) {
		e.inspector()
		const keys = 25
		m, other := e.member(), e.member()
		var leases []distributed.Lease
		var want, got []string
		for i := range keys {
			want = append(want, e.key(fmt.Sprint("in:{", i)))
			leases = append(leases, m.lease(want[i]))
		}
		leases = append(leases, m.lease(e.key("{out")))
		p := other.place(want[0])
		for _, found := range e.list(e.prefix+"in:", 10) {
			got = append(got, found.Key)
			waits := 0
			if found.Key == e.key("in:{0") {
				waits = 1
			}
			if len(found.Holders) != 1 || found.Holders[0].Instance != e.called(m) || len(found.Waiters)+found.MoreWaiters != waits {
				e.Errorf("List found %+v; want the holder %q and %d waiters", found, m.name, waits)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) { // a page may repeat one
			e.Errorf("List found the keys %q; want %q", got, want)
		}
		e.release(leases...)
		e.release(e.granted(p))
	}},
	{"a refused caller learns the holder, if the answer names it", func(e *env, key string) {
		a, b := e.member(), e.member()
		for _, mode := range []how{exclusive, shared} {
			l := a.lease(key)
			err := b.refusal(key, mode)
			if named := (*distributed.HeldError)(nil); errors.As(err, &named) && named.Holder != e.called(a) {
				e.Errorf("the holder is %q; want %q", named.Holder, e.called(a))
			}
			e.release(l)
		}
	}},
	{"a waiting caller learns the holder, if the answer names it", func(e *env, key string) {
		a, b, c := e.member(), e.member(), e.member()
		l := a.lease(key)
		places := []distributed.Place{b.place(key), c.place(key)}
		for _, p := range places {
			if h := p.Holder(); h != e.called(a) && h != "" {
				e.Errorf("the holder is %q; want %q", h, e.called(a))
			}
		}
		e.passOn(l, places...)
	}},
}

// inspector returns the backend of another process, if there is one, as an Inspector. Without one the case is skipped.
func (e *env) inspector() distributed.Inspector {
	e.Helper()
	i, ok := distributed.InspectorOf(e.open[len(e.open)-1])
	if !ok {
		e.Skipf("no Inspector")
	}
	return i
}

func (e *env) inspect(key string) distributed.Inspection {
	e.Helper()
	ctx, cancel := timely()
	defer cancel()
	found, err := e.inspector().Inspect(ctx, key)
	if err != nil {
		e.Fatalf("Inspect: %v", err)
	}
	if found.Key != key {
		e.Fatalf("Inspect of %q is of the key %q", key, found.Key)
	}
	return found
}

// recent asserts that a time that the service tells is not known, or is one of this case.
func (e *env) recent(what string, at time.Time) {
	e.Helper()
	if age := time.Since(at); !at.IsZero() && (age < -time.Minute || age > time.Hour) {
		e.Errorf("%s since %v, which is %v ago", what, at, age)
	}
}

// list returns all pages.
func (e *env) list(prefix string, limit int) (all []distributed.Inspection) {
	e.Helper()
	ctx, cancel := timely()
	defer cancel()
	for cursor := ""; ; {
		page, next, err := e.inspector().List(ctx, prefix, cursor, limit)
		if errors.Is(err, errors.ErrUnsupported) {
			e.Skipf("the backend cannot list its keys")
		}
		if err != nil {
			e.Fatalf("List: %v", err)
		}
		all = append(all, page...)
		if next == "" {
			return all
		}
		cursor = next
	}
}

// called is how answers name a holder.
func (e *env) called(m *member) string {
	if e.Service.Holder == nil {
		return m.name
	}
	return e.Service.Holder(m.name)
}
