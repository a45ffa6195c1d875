package register

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	locktest.Run(t, locktest.Fixture{Bubble: true, Skip: downgrades, Open: func(locktest.TB) locktest.Service {
		m := newMemory()
		connect := func() *link {
			l := newLink(m, 1, 2, false)
			l.trip = time.Millisecond / 10
			return l
		}
		l := connect()
		return locktest.Service{
			Backend: New("sim", l),
			Another: func() distributed.Backend { return New("sim", connect()) },
			Expire: func(key string) { // its queue stays
				d := m.get(key)
				now, _ := decode("test", d)
				for _, c := range slices.Clone(now.Owners) {
					now.remove(c.ID)
				}
				if len(now.Owners) == 0 {
					m.lose(key)
				} else if err := m.put(key, now.encode(), d.Version, now.keep()); err != nil {
					panic(err)
				}
			},
			Cut: l.cut,
		}
	}})
}
