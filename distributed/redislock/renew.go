package redislock

import (
	"context"
	"time"

	"github.com/wllock/wllock/distributed"
)

// maxRenewed bounds the leases that one call renews. It keeps the server from others for about as long as a pipeline of
// maxBatch calls.
const maxRenewed = 512

// renew is what the Keeper calls: all leases that are due. A grant that lies unread is not claimed yet: perhaps nobody
// will release it.
func (b *Backend) renew(ctx context.Context, due []distributed.Lease) {
	batch := make([]*lease, 0, len(due))
	for _, w := range due {
		if l := w.(*lease); len(l.a.granted) == 0 {
			batch = append(batch, l)
		} else {
			l.Postpone()
		}
	}
	for len(batch) > 1 && b.single.Load() {
		n := alike(batch)
		if !b.renewAll(ctx, batch[:n]) {
			break
		}
		batch = batch[n:]
	}
	for len(batch) > 0 {
		n := min(len(batch), maxBatch)
		b.renewBatch(ctx, batch[:n])
		batch = batch[n:]
	}
}

// alike returns how many leases at the front one call can renew.
func alike(batch []*lease) int {
	n := 1
	for n < min(len(batch), maxRenewed) && batch[n].a.mode == batch[0].a.mode && batch[n].a.ttl == batch[0].a.ttl {
		n++
	}
	return n
}

// renewAll renews leases of one mode and TTL with one call; false: they need a call each, being shared, or alone, or
// because the server refuses them together, be it for one key that we may not use.
func (b *Backend) renewAll(ctx context.Context, batch []*lease) bool {
	if len(batch) == 1 || batch[0].a.mode != distributed.Exclusive {
		return false
	}
	ttl := batch[0].a.ttl
	c := renewingAll(batch)
	sent := time.Now()
	b.tr.do(within(ctx, tryTimeout(ttl)), c)
	if c.err != nil {
		return classify(c.err) == passing
	}
	for i, l := range batch {
		switch c.reply[i] {
		case 'h':
			l.held(sent, false)
		case 'w':
			l.held(sent, true)
		default:
			l.gone()
		}
	}
	return true
}

// renewingAll is the call for many leases. What it is made of is in interfaces already.
func renewingAll(batch []*lease) *call {
	n := len(batch)
	wire := make([]any, 3*n+wireHead+1)
	wire[0], wire[1], wire[2] = "evalsha", renewAllScript.digest, 2*n
	locks := wire[wireHead:]
	queues, args := locks[n:], locks[2*n:]
	args[0] = batch[0].a.ttl.Milliseconds()
	for i, l := range batch {
		locks[i], queues[i], args[i+1] = l.a.wire[wireHead], l.a.wire[wireHead+queueKey], l.a.token
	}
	return &call{script: renewAllScript, wire: wire}
}

// renewBatch renews leases with a call each, in one pipeline.
func (b *Backend) renewBatch(ctx context.Context, batch []*lease) {
	calls := make([]*call, len(batch))
	shortest := batch[0].a.ttl
	for i, l := range batch {
		calls[i] = l.a.call(renewScript)
		shortest = min(shortest, l.a.ttl)
	}
	sent := time.Now()
	b.tr.do(within(ctx, tryTimeout(shortest)), calls...)
	for i, l := range batch {
		l.renewed(calls[i], sent)
	}
}

// renewed takes the answer to a renewal. No answer changes nothing: the Keeper asks again.
func (l *lease) renewed(c *call, sent time.Time) {
	switch {
	case c.err != nil:
	case c.word(0) == "held":
		l.held(sent, c.number(1) == 1)
	default:
		l.gone()
	}
}

func (l *lease) held(sent time.Time, wanted bool) {
	l.Renewed(distributed.Validity(sent, l.a.ttl))
	if wanted {
		l.SetContended()
	}
}

// gone: the server says that the lease is another's, or nobody's.
func (l *lease) gone() {
	l.End()
	l.a.b.forget(l.a)
}
