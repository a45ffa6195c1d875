package locktest

import "github.com/wllock/wllock/distributed"

var sharedCases = []Case{
	{"readers hold together and keep writers out", readersTogether},
	{"a writer waits for the last reader", lastReader},
	{"a reader does not pass a queued writer", readerDoesNotBarge},
	{"the run of readers at the head enters together", runOfReaders},
	{"readers enter when the writer before them leaves", writerLeaves},
	{"readers enter beside others when the writer before them leaves", writerLeavesReaders},
}

func readersTogether(e *env) {
	key := e.key("k")
	a := e.member().lease(key, shared)
	b := e.member().lease(key, shared, noWait)
	e.held(key, a)
	e.held(key, b)
	e.release(a)
	e.held(key, b)
	e.release(b)
	e.free(key)
}

func lastReader(e *env) {
	key := e.key("k")
	var readers []distributed.Lease
	for range 3 {
		readers = append(readers, e.member().lease(key, shared))
	}
	writer := e.member().place(key)
	for _, r := range readers {
		e.waiting(writer)
		e.release(r)
	}
	e.release(e.granted(writer))
	e.free(key)
}

func readerDoesNotBarge(e *env) {
	key := e.key("k")
	reader := e.member().lease(key, shared)
	writer := e.member().place(key)
	e.member().refused(key, shared)
	late := e.member().place(key, shared)
	e.release(reader)
	l := e.granted(writer)
	e.waiting(late)
	e.release(l)
	e.release(e.granted(late))
	e.free(key)
}

func runOfReaders(e *env) {
	key := e.key("k")
	writer := e.member().lease(key)
	first := e.member().place(key, shared)
	second := e.member().place(key, shared)
	between := e.member().place(key)
	third := e.member().place(key, shared)

	e.release(writer)
	a, b := e.granted(first), e.granted(second)
	e.waiting(between, third)
	e.release(b)
	e.waiting(between, third)
	e.release(a)
	l := e.granted(between)
	e.waiting(third)
	e.release(l)
	e.release(e.granted(third))
	e.free(key)
}

func writerLeaves(e *env) {
	key := e.key("k")
	holder := e.member().lease(key)
	writer := e.member().place(key)
	reader := e.member().place(key, shared)
	e.leave(writer)
	e.waiting(reader)
	e.release(holder)
	e.release(e.granted(reader))
	e.free(key)
}

func writerLeavesReaders(e *env) {
	key := e.key("k")
	holder := e.member().lease(key, shared)
	writer := e.member().place(key)
	a := e.member().place(key, shared)
	b := e.member().place(key, shared)
	e.waiting(writer, a, b)
	e.leave(writer)
	e.release(e.granted(a))
	e.release(e.granted(b))
	e.held(key, holder)
	e.release(holder)
	e.free(key)
}
