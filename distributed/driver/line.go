package driver

// Asked is what one request of a lock's queue asks for. A Driver whose service keeps the queue embeds it in its own type.
type Asked struct {
	Shared bool
	Limit  int // of a permit. 0: none
}

// Asks returns what the request asks for.
func (a Asked) Asks() Asked { return a }

// asker is a request of a queue.
type asker interface{ Asks() Asked }

// MostFollowed bounds how many requests a waiter watches one by one. With more it watches all that leave the queue.
const MostFollowed = 32

// Admitted is how many at the head of a queue, in the order of the requests, hold the lock. That is one writer, or the readers and
// permits before the first writer, up to the first permit that has as many before it as its limit says. downgraded says that the
// first may be a writer that has downgraded its lease. So what is before a request decides on it. As that can only become less, one
// that holds the lock goes on to. One that is admitted behind a permit saw that one admitted (rule C8).
func Admitted[R asker](q []R, downgraded bool) int {
	for i := range q {
		switch r := q[i].Asks(); {
		case !r.Shared && i > 0:
			return i
		case !r.Shared && !downgraded:
			return 1
		case r.Limit > 0 && i >= r.Limit:
			return i
		}
	}
	return len(q)
}

// KeepsOut returns which of the requests before the one at i, which is not admitted, have to be watched: it cannot be admitted before one of
// them has gone, or was downgraded. That is the last one, for an exclusive request. For a shared one it is the last writer. For a
// permit with the limit n that has too many before it, it is the n youngest of these: more than all but n have to go. So one that is
// released wakes n waiters at most, and one if the oldest goes first. Who is kept out by the limits of others alone waits for
// what the last of them does, and for that one to leave.
func KeepsOut[R asker](q []R, i int, downgraded bool) []R {
	if !q[i].Asks().Shared {
		return q[i-1 : i]
	}
	for j := i - 1; j > 0 || j == 0 && !downgraded; j-- {
		if !q[j].Asks().Shared {
			return q[j : j+1]
		}
	}
	for j := i; j >= 0; j-- {
		if limit := q[j].Asks().Limit; limit > 0 && j >= limit {
			return q[j-limit : min(j+1, i)]
		}
	}
	return nil
}
