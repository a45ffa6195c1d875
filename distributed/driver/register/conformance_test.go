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
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) { conforms(t, k) })
	}
}

func conforms(t *testing.T, k kind) {
	locktest.Run(t, locktest.Fixture{Bubble: true, Open: func(locktest.TB) locktest.Service {
		m := newMemory(k)
		connect := func() *link {
			l := newLink(m, 1, 2, false)
			l.trip = time.Millisecond / 10
			return l
		}
		l := connect()
		return locktest.Service{
			Backend: m.open(l),
			Another: func() distributed.Backend { return m.open(connect()) },
			Expire: func(key string) { // its queue stays
				d := m.get(key)
				now, _ := m.reader.decode(d)
				for _, c := range slices.Clone(now.Owners) {
					now.remove(c.ID)
				}
				if len(now.Owners) == 0 && k == forgets {
					m.lose(key)
				} else if _, err := m.put(key, now.encode(), d.Version, now.keep()); err != nil {
					panic(err)
				}
			},
			Cut: l.cut,
		}
	}})
}
