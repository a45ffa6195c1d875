package redislock

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

const (
	shareRound  = 400 * time.Millisecond // of one way
	shareRounds = 5                      // of each
	ioTimeout   = 2 * time.Second        // as the Backend's client has it
)

// way is one way for many callers to reach the server.
type way struct {
	name string
	open func(b *testing.B, addr string) conn.Transport
}

// ways are what conn.Pipelined was chosen from. AutoPipeline is go-redis's own, in its two modes.
var ways = []way{
	{"pool", func(b *testing.B, addr string) conn.Transport { return private(b, addr) }},
	{"pipelined", func(b *testing.B, addr string) conn.Transport { return conn.Pipelined(private(b, addr)) }},
	{"auto", func(b *testing.B, addr string) conn.Transport { return autoPiped(b, addr, nil) }},
	{"auto-duplex", func(b *testing.B, addr string) conn.Transport {
		o := redis.DefaultBlockingAutoPipelineOptions()
		o.FullDuplex = true
		return autoPiped(b, addr, o)
	}},
}

// BenchmarkSharing is the same work by each way: goroutines that take and give back a lock of their own, enter and leave
// one after the other. The ways take turns, round by round, so that all see the same machine; shown are medians.
// It takes a minute and a half, whatever -benchtime says.
func BenchmarkSharing(b *testing.B) {
	s := redistest.Start(b)
	for _, link := range []struct{ name, addr string }{{"loopback", s.Addr}, {"0.5ms", slowlink(b, s.Addr)}} {
		open := make([]conn.Transport, len(ways))
		for i, w := range ways {
			open[i] = w.open(b, link.addr)
		}
		for _, callers := range []int{1, 8, 64, 256} {
			rounds := make([][]share, len(ways))
			for n := range shareRounds + 1 {
				for k := range ways {
					i := (k + n) % len(ways)
					if r := shareOf(b, open[i], callers); n > 0 { // the first warms up
						rounds[i] = append(rounds[i], r)
					}
				}
			}
			for i, w := range ways {
				b.Run(fmt.Sprintf("%s/%d/%s", link.name, callers, w.name), func(b *testing.B) { report(b, rounds[i]) })
			}
		}
	}
}

// share is what one round has shown.
type share struct{ rate, p50, p99, allocs, cpu float64 }

func report(b *testing.B, rounds []share) {
	median := func(of func(share) float64) float64 {
		slices.SortFunc(rounds, func(x, y share) int { return cmp.Compare(of(x), of(y)) })
		return of(rounds[len(rounds)/2])
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(func(s share) float64 { return s.rate }), "locks/s")
	b.ReportMetric(median(func(s share) float64 { return s.p50 }), "p50-µs")
	b.ReportMetric(median(func(s share) float64 { return s.p99 }), "p99-µs")
	b.ReportMetric(median(func(s share) float64 { return s.allocs }), "allocs/lock")
	b.ReportMetric(median(func(s share) float64 { return s.cpu }), "cpu-µs/lock")
}

// shareOf runs one round.
func shareOf(b *testing.B, tr conn.Transport, callers int) share {
	defaults, err := newSettings(nil)
	require.NoError(b, err)
	backend := newBackend(tr, "", defaults) // only makes the calls: nothing is started
	var stop atomic.Bool
	var wg sync.WaitGroup
	took := make([][]time.Duration, callers)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := ownCPU(b), time.Now()
	for i := range callers {
		wg.Go(func() {
			req := distributed.Request{Key: fmt.Sprintf("bench:share:%d", i), Instance: "i", TTL: 5 * time.Second}
			for !stop.Load() {
				began := time.Now()
				a := attemptOf(backend, req)
				for _, c := range []*conn.Call{a.Wire.enter(noPrev), a.Wire.leave()} {
					if tr.Do(conn.Within(context.Background(), ioTimeout), c); c.Err != nil {
						b.Error(c.Err)
						return
					}
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	time.Sleep(shareRound)
	stop.Store(true)
	wg.Wait()
	seconds := time.Since(start).Seconds()
	cpu = ownCPU(b) - cpu
	runtime.ReadMemStats(&after)
	all := slices.Concat(took...)
	slices.Sort(all)
	n := float64(len(all))
	at := func(q float64) float64 { return float64(all[int(q*(n-1))].Nanoseconds()) / 1e3 }
	return share{n / seconds, at(0.5), at(0.99), float64(after.Mallocs-before.Mallocs) / n, float64(cpu.Microseconds()) / n}
}

// ownCPU is the processor time this process has used.
func ownCPU(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// private is the client of a Backend.
func private(b *testing.B, addr string) conn.Transport {
	tr, _, err := conn.Open("redis://"+addr, conn.Config{Pipelines: pipelines})
	require.NoError(b, err)
	b.Cleanup(func() { _ = tr.Close() })
	return tr
}

// piped lets AutoPipeline carry the calls. Its client is like ours, but for the connections it keeps for pipelines.
type piped struct {
	conn.Transport
	auto *redis.AutoPipeliner
}

func autoPiped(b *testing.B, addr string, o *redis.AutoPipelineOptions) conn.Transport {
	client := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: conn.DialTimeout, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, PoolTimeout: ioTimeout, AutoPipelineOptions: o,
	})
	auto, err := client.AutoPipeline()
	require.NoError(b, err)
	b.Cleanup(func() { _, _ = auto.Close(), client.Close() })
	return piped{private(b, addr), auto}
}

func (p piped) Do(ctx context.Context, calls ...*conn.Call) {
	for _, c := range calls {
		cmd := redis.NewCmd(ctx, c.Args...)
		_ = p.auto.Process(ctx, cmd)
		if c.Reply, c.Err = cmd.Text(); c.Err != nil && redis.HasErrorPrefix(c.Err, "NOSCRIPT") {
			p.Transport.Do(ctx, c)
		}
	}
}

// slowlink starts the proxy of the benchmarks before a server: 0.5 ms each way, exactly.
func slowlink(b *testing.B, addr string) string {
	proxy := exec.Command("go", "-C", "../../benchmarks", "run", "./slowlink", addr)
	in, err := proxy.StdinPipe()
	require.NoError(b, err)
	out, err := proxy.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, proxy.Start())
	b.Cleanup(func() { _, _ = in.Close(), proxy.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	return strings.TrimSpace(line)
}
