package locktest

import "github.com/wllock/wllock/distributed"

var orderCases = []Case{
	{"an exclusive lease excludes everybody else", excludes},
	{"an instance is excluded by its own lease too", excludesItself},
	{"first come first served across instances", fifo},
	{"a hand-off leaves no gap for a newcomer", noBarging},
	{"leaving an older place keeps the newer one", repeatedRequest},
}

var noWaitCases = []Case{
	{"no wait takes a free key", noWaitFree},
	{"no wait is never queued", noWaitNotQueued},
}

func excludes(e *env) {
	key := e.key("k")
	l := e.member().lease(key)
	p := e.member().place(key)
	e.member().refused(key)
	e.member().refused(key, shared)
	e.waiting(p)
	e.release(l)
	l = e.granted(p)
	e.held(key, l)
	e.release(l)
	e.free(key)
}

func excludesItself(e *env) {
	key, m := e.key("k"), e.member()
	l := m.lease(key)
	m.refused(key)
	p := m.place(key)
	e.waiting(p)
	e.release(l)
	e.release(e.granted(p))
	e.free(key)
}

func fifo(e *env) {
	key := e.key("k")
	l := e.member().lease(key)
	var places []distributed.Place
	for range 8 {
		places = append(places, e.member().place(key))
	}
	for i, p := range places {
		e.waiting(places[i:]...)
		e.release(l)
		l = e.granted(p)
	}
	e.release(l)
	e.free(key)
}

// A lock that is free for a moment between two holders goes to a newcomer that asks in that moment.
func noBarging(e *env) {
	key, newcomer := e.key("k"), e.member()
	l := e.member().lease(key)
	for range 10 {
		p := e.member().place(key)
		e.release(l)
		newcomer.refused(key)
		l = e.granted(p)
	}
	e.release(l)
	e.free(key)
}

// An instance asks again when the answer to its first request was lost.
func repeatedRequest(e *env) {
	key, m := e.key("k"), e.member()
	l := e.member().lease(key)
	older := m.place(key)
	newer := m.place(key)
	e.leave(older)
	e.waiting(newer)
	e.release(l)
	e.release(e.granted(newer))
	e.free(key)
}

func noWaitFree(e *env) {
	key := e.key("k")
	l := e.member().lease(key, noWait)
	e.held(key, l)
	e.release(l)
	e.free(key)
}

func noWaitNotQueued(e *env) {
	key := e.key("k")
	l := e.member().lease(key)
	for range 3 {
		e.member().refused(key)
	}
	p := e.member().place(key)
	e.member().refused(key)
	e.release(l)
	e.release(e.granted(p))
	e.release(e.member().lease(key)) // at once: no refused request is queued before it
}
