package redislock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/redistest"
)

// BenchmarkScript is what the scripts of the hot path cost the server: its CPU time for each, parsing and answering
// included, with SETNX+DEL as the measure. Calls come in pipelines, so that the network's part is small.
func BenchmarkScript(b *testing.B) {
	s := redistest.Start(b)
	u := newUser(b, open(b, s.Addr)).lasting(5e9)
	release(b, u.lease("bench:script:0")) // scripts are loaded
	const pipe = 64
	var last [pipe]*attempt // of each key, for prev
	run := func(name string, make func(i int, a *attempt) []*conn.Call) {
		b.Run(name, func(b *testing.B) {
			tr := private(b, s.Addr)
			var batch []*conn.Call
			before, ops := serverCPU(b, s), 0
			for n := 0; b.Loop(); n++ {
				a := attemptOf(u.b, distributed.Request{Key: fmt.Sprintf("bench:script:%d", n%pipe), Instance: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", TTL: 5e9})
				batch = append(batch, make(n%pipe, a)...)
				if n%pipe == pipe-1 {
					tr.Do(context.Background(), batch...)
					for i, c := range batch {
						if r := readStanding(c.Reply, time.Time{}); r.kind == hasLease && i < pipe && last[i] != nil {
							last[i].Fences.First = r.grant.fence
						}
						if c.Err != nil || len(c.Reply) != 16 && c.Reply != "released" {
							b.Fatal(c.Reply, c.Err)
						}
					}
					batch, ops = batch[:0], ops+pipe
				}
			}
			b.ReportMetric((serverCPU(b, s)-before)*1e6/float64(max(ops, 1)), "server-µs/op")
		})
	}
	run("lock+unlock", func(_ int, a *attempt) []*conn.Call {
		return []*conn.Call{a.Wire.enter(noPrev), a.Wire.leave()}
	})
	run("prev", func(i int, a *attempt) []*conn.Call {
		c := a.Wire.enter(asPrev(last[i]))
		last[i] = a
		return []*conn.Call{c}
	})
	b.Run("setnx+del", func(b *testing.B) {
		c, ctx := s.Client(), b.Context()
		before, ops := serverCPU(b, s), 0
		p := c.Pipeline()
		for n := 0; b.Loop(); n++ {
			k := fmt.Sprintf("bench:setnx:%d", n%pipe)
			p.SetNX(ctx, k, strings.Repeat("x", 24), 5e9)
			p.Del(ctx, k)
			if n%pipe == pipe-1 {
				if _, err := p.Exec(ctx); err != nil {
					b.Fatal(err)
				}
				ops += pipe
			}
		}
		b.ReportMetric((serverCPU(b, s)-before)*1e6/float64(max(ops, 1)), "server-µs/op")
	})
}

// serverCPU is the processor time the server has used, in seconds.
func serverCPU(b testing.TB, s *redistest.Server) float64 {
	var user, sys float64
	info, err := s.Client().Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		_, _ = fmt.Sscanf(line, "used_cpu_user:%g", &user)
		_, _ = fmt.Sscanf(line, "used_cpu_sys:%g", &sys)
	}
	return user + sys
}
