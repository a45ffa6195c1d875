package locktest

import "github.com/wllock/wllock/distributed"

var placeCases = []Case{
	{"a place that was left is passed over", func(e *env, key string) {
		l := e.member().lease(key)
		left, next := e.member().place(key), e.member().place(key)
		e.leave(left)
		e.passOn(l, next)
		e.waiting(left)
	}},
	{"leaving releases an unread grant", func(e *env, key string) {
		l := e.member().lease(key)
		left, next := e.member().place(key), e.member().place(key)
		e.release(l)
		e.eventually("the grant arrives", func() bool { return len(left.Granted()) > 0 })
		e.waiting(next)
		e.leave(left)
		e.release(e.granted(next))
		e.waiting(left)
	}},
	{"leaving against a grant in flight loses nothing", func(e *env, key string) {
		var left []distributed.Place
		for range 50 {
			l := e.member().lease(key)
			p := e.member().place(key)
			answer := make(chan error)
			go func() { answer <- try(l.Release) }()
			e.leave(p)
			if err := <-answer; err != nil {
				e.Fatalf("Release: %v", err)
			}
			e.free(key)
			left = append(left, p)
		}
		e.waiting(left...)
	}},
	{"leaving twice is fine", func(e *env, key string) {
		l := e.member().lease(key)
		p, next := e.member().place(key), e.member().place(key)
		e.leave(p)
		e.leave(p)
		e.waiting(next)
		e.release(l)
		l = e.granted(next)
		e.leave(p)
		e.held(key, l)
		e.release(l)
	}},
	{"leaving after the lease was received keeps the lease", func(e *env, key string) {
		l := e.member().lease(key)
		p := e.member().place(key)
		e.release(l)
		l = e.granted(p)
		e.leave(p)
		e.held(key, l)
		e.release(l)
	}},
	{"leaving from the middle keeps the order", func(e *env, key string) {
		l := e.member().lease(key)
		places := e.queue(key, 5)
		e.leave(places[1])
		e.leave(places[4])
		places = append(places, e.member().place(key))
		for _, i := range []int{0, 2, 3, 5} {
			e.release(l)
			l = e.granted(places[i])
		}
		e.release(l)
	}},
}
