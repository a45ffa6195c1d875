package conn

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/parts"
)

// observed reports each exchange of a transport: a call alone, or a pipeline of several.
type observed struct {
	Transport
	observers *parts.Observers
}

// Observed returns t with its exchanges reported.
func Observed(t Transport, o *parts.Observers) Transport { return &observed{t, o} }

// Do implements Transport.
func (t *observed) Do(ctx context.Context, calls ...*Call) {
	sent := time.Now()
	for _, c := range calls {
		c.Sent = sent
	}
	t.Transport.Do(ctx, calls...)
	err := mostAnswered(calls)
	if calls[0].Acked && Answered(err) {
		t.reportAcked(calls[0].Script.Name, err)
		return
	}
	t.report(calls[0].Script.Name, sent, err)
}

// Ping implements Transport.
func (t *observed) Ping(ctx context.Context, tag string) (time.Duration, error) {
	sent := time.Now()
	d, err := t.Transport.Ping(ctx, tag)
	t.report("ping", sent, err)
	return d, err
}

// About implements Transport.
func (t *observed) About(ctx context.Context, tag string) (Info, error) {
	sent := time.Now()
	info, err := t.Transport.About(ctx, tag)
	t.report("info", sent, err)
	return info, err
}

// report tells the observers. An exchange that its caller has cancelled, or that has found no connection free, says nothing about the server.
func (t *observed) report(name string, sent time.Time, err error) {
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, context.Canceled) && !errors.Is(err, distributed.ErrUnreached) {
		return
	}
	e := distributed.Exchange{Sent: sent}
	if Answered(err) {
		e.RTT = max(time.Since(sent), 1)
	}
	if err != nil {
		e.Err = Unavailable(name, err)
	}
	t.observers.Report(e)
}

// reportAcked is report for an answer that replicas were waited for: it came now, and says nothing about the round trip.
func (t *observed) reportAcked(name string, err error) {
	e := distributed.Exchange{Sent: time.Now()}
	if err != nil {
		e.Err = Unavailable(name, err)
	}
	t.observers.Report(e)
}

// mostAnswered returns the error of a pipeline: nil if one call was answered well, because the server is there then; else
// that of one that was answered, or at least sent. In a cluster its calls may have gone to several servers.
func mostAnswered(calls []*Call) error {
	why := calls[0].Err
	for _, c := range calls {
		switch {
		case c.Err == nil:
			return nil
		case Answered(c.Err), errors.Is(why, distributed.ErrUnreached):
			if !Answered(why) {
				why = c.Err
			}
		}
	}
	return why
}
