package locktest

import "github.com/wllock/wllock/distributed"

var placeCases = []Case{
	{"a place that was left is passed over", leftPlace},
	{"leaving releases an unread grant", leaveUnread},
	{"leaving against a grant in flight loses nothing", leaveInFlight},
	{"leaving twice is fine", leaveTwice},
	{"leaving after the lease was received keeps the lease", leaveReceived},
	{"leaving from the middle keeps the order", leaveMiddle},
}

func leftPlace(e *env) {
	key := e.key("k")
	l := e.member().lease(key)
	left, next := e.member().place(key), e.member().place(key)
	e.leave(left)
	e.release(l)
	e.release(e.granted(next))
	e.waiting(left)
	e.free(key)
}

func leaveUnread(e *env) {
	key := e.key("k")
	l := e.member().lease(key)
	left, next := e.member().place(key), e.member().place(key)
	e.release(l)
	e.eventually("the grant arrives", func() bool { return len(left.Granted()) > 0 })
	e.waiting(next)
	e.leave(left)
	e.release(e.granted(next))
	e.waiting(left)
	e.free(key)
}

func leaveInFlight(e *env) {
	key := e.key("k")
	var left []distributed.Place
	for range 50 {
		l := e.member().lease(key)
		p := e.member().place(key)
		answer := make(chan error)
		go func() { answer <- e.tryRelease(l) }()
		e.leave(p)
		if err := <-answer; err != nil {
			e.Fatalf("Release: %v", err)
		}
		e.free(key)
		left = append(left, p)
	}
	e.waiting(left...)
}

func leaveTwice(e *env) {
	key := e.key("k")
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
	e.free(key)
}

func leaveReceived(e *env) {
	key := e.key("k")
	l := e.member().lease(key)
	p := e.member().place(key)
	e.release(l)
	l = e.granted(p)
	e.leave(p)
	e.held(key, l)
	e.release(l)
	e.free(key)
}

func leaveMiddle(e *env) {
	key := e.key("k")
	l := e.member().lease(key)
	var places []distributed.Place
	for range 5 {
		places = append(places, e.member().place(key))
	}
	e.leave(places[1])
	e.leave(places[4])
	places = append(places, e.member().place(key))
	for _, i := range []int{0, 2, 3, 5} {
		e.release(l)
		l = e.granted(places[i])
	}
	e.release(l)
	e.free(key)
}
