package parts

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Observers are functions that are called after every exchange of a backend. The zero value has none. It is safe for concurrent use.
type Observers struct {
	mu  sync.Mutex                                    // for changes of all
	all atomic.Pointer[[]*func(distributed.Exchange)] // never changed in place; nil: none
}

// Observe has f called until stop is: it implements distributed.Observable.
func (o *Observers) Observe(f func(distributed.Exchange)) (stop func()) {
	o.change(func(all []*func(distributed.Exchange)) []*func(distributed.Exchange) { return append(all, &f) })
	return func() {
		o.change(func(all []*func(distributed.Exchange)) []*func(distributed.Exchange) {
			return slices.DeleteFunc(all, func(one *func(distributed.Exchange)) bool { return one == &f })
		})
	}
}

func (o *Observers) change(f func([]*func(distributed.Exchange)) []*func(distributed.Exchange)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []*func(distributed.Exchange)
	if old := o.all.Load(); old != nil {
		all = slices.Clone(*old)
	}
	if all = f(all); len(all) == 0 {
		o.all.Store(nil)
		return
	}
	o.all.Store(&all)
}

// Report calls all of them.
func (o *Observers) Report(e distributed.Exchange) {
	if all := o.all.Load(); all != nil {
		for _, f := range *all {
			(*f)(e)
		}
	}
}

// Exchanged reports a request that was sent then and ends now. A refusal is an answer, too.
func (o *Observers) Exchanged(sent time.Time, err error) {
	e := distributed.Exchange{Sent: sent, Err: err}
	if err == nil || errors.Is(err, distributed.ErrRefused) {
		e.RTT = time.Since(sent)
	}
	o.Report(e)
}
