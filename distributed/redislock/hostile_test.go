package redislock

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// hostile is a network that delivers calls a second time, later; loses answers; and delays both ways.
type hostile struct {
	conn.Transport
	wg   *sync.WaitGroup
	rand *rand.Rand // may be used by several goroutines
}

func (h hostile) upTo(d time.Duration) time.Duration { return time.Duration(h.rand.Int64N(int64(d))) }

func (h hostile) Do(ctx context.Context, calls ...*conn.Call) {
	for _, c := range calls {
		if h.rand.IntN(8) == 0 {
			again := &conn.Call{Script: c.Script, Args: c.Args}
			d := h.upTo(400 * time.Millisecond)
			h.wg.Go(func() {
				time.Sleep(d)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				h.Transport.Do(ctx, again)
			})
		}
	}
	if h.rand.IntN(10) == 0 {
		time.Sleep(h.upTo(40 * time.Millisecond))
	}
	h.Transport.Do(ctx, calls...)
	if h.rand.IntN(10) == 0 {
		time.Sleep(h.upTo(40 * time.Millisecond))
	}
	if h.rand.IntN(12) == 0 {
		for _, c := range calls {
			c.Reply, c.Err = "", context.DeadlineExceeded
		}
	}
}

func (h hostile) ListenTo(ctx context.Context, channels *conn.Channels, interval func() time.Duration, l conn.ChannelListener) {
	h.Transport.ListenTo(ctx, channels, interval, hostileListener{l, h})
}

// hostileListener loses, doubles and delays messages.
type hostileListener struct {
	conn.ChannelListener
	net hostile
}

func (h hostileListener) OnMessage(channel, text string) {
	for range h.net.rand.IntN(3) {
		d := h.net.upTo(100 * time.Millisecond)
		h.net.wg.Go(func() { time.Sleep(d); h.ChannelListener.OnMessage(channel, text) })
	}
	if h.net.rand.IntN(3) > 0 {
		h.ChannelListener.OnMessage(channel, text)
	}
}

// TestHostileNetwork: readers and writers of six processes, five of them over a hostile network, in a hurry, giving up,
// releasing in every way. Two that exclude each other never hold the lock together, no fence decreases, nothing is left behind.
func TestHostileNetwork(t *testing.T) {
	testscope.Long(t, "a storm of faults")
	t.Parallel()
	run := testscope.Scale(4*time.Second, 40*time.Second)
	s := redistest.Start(t)
	h := hostile{wg: new(sync.WaitGroup), rand: testseed.Rand(t)}
	var mu sync.Mutex
	var last uint64 // the store's fence: writers must be larger, readers not smaller
	readers, writers := 0, 0
	var turns, over, lost int
	ctx, cancel := context.WithTimeout(t.Context(), run)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 6 {
		b := open(t, s.Addr)
		if i > 0 {
			swapTransport(b, func(tr conn.Transport) conn.Transport { return hostile{tr, h.wg, h.rand} })
		}
		u := newUser(t, b).lasting(400 * time.Millisecond)
		wg.Go(func() {
			var prev distributed.Lease
			for ctx.Err() == nil {
				req := distributed.Request{Key: key(t), Instance: u.name, TTL: u.ttl, Prev: prev}
				if h.rand.IntN(3) == 0 {
					req.Mode = distributed.Shared
				}
				c, end := context.WithTimeout(ctx, h.upTo(600*time.Millisecond))
				l, p, err := b.Enter(c, req)
				prev = nil
				if err != nil {
					end()
					continue
				}
				if p != nil {
					var ok bool
					select {
					case l, ok = <-p.Granted():
						if !ok {
							mu.Lock()
							lost++
							mu.Unlock()
							end()
							continue
						}
					case <-c.Done():
						_ = p.Leave(context.Background())
						end()
						continue
					}
				}
				end()
				f, ok := l.NextFence()
				mu.Lock()
				valid := func() bool { return !distributed.Over(time.Now(), l.Until()) && !isLost(l) }
				if ok && valid() {
					if req.Mode == distributed.Exclusive {
						if f <= last {
							t.Errorf("writer's fence %d after %d", f, last)
						}
						last = f
						if readers+writers > 0 {
							t.Errorf("a writer beside %d readers and %d writers", readers, writers)
						}
						writers++
					} else {
						if f <= last {
							t.Errorf("reader's fence %d after writer's %d", f, last)
						}
						if writers > 0 {
							t.Errorf("a reader beside a writer")
						}
						readers++
					}
					turns++
					mu.Unlock()
					hold := h.upTo(10 * time.Millisecond)
					if h.rand.IntN(10) == 0 {
						hold = h.upTo(500 * time.Millisecond)
					}
					for until := time.Now().Add(hold); time.Now().Before(until) && valid() && time.Until(l.Until()) > 15*time.Millisecond; {
						time.Sleep(time.Millisecond)
					}
					mu.Lock()
					if req.Mode == distributed.Exclusive {
						writers--
					} else {
						readers--
					}
				} else {
					over++
				}
				mu.Unlock()
				switch h.rand.IntN(3) {
				case 0:
					prev = l
				case 1:
					l.(distributed.AsyncLease).StartRelease()
					prev = l
				default:
					_ = l.Release(context.Background())
				}
			}
			if prev != nil {
				_ = prev.Release(context.Background())
			}
		})
	}
	wg.Wait()
	h.wg.Wait()
	t.Logf("%d turns, %d over when received, %d places lost", turns, over, lost)
	require.Greater(t, turns, 10)
	require.Eventually(t, func() bool { return s.Do("GET", key(t)) == nil && queueLength(s, key(t)) == 0 }, patience, 10*time.Millisecond)
}

func isLost(l distributed.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}
