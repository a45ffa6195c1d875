package sqllock

import (
	"context"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
)

// suiteTTL forgives a machine, and a database on it, that stands still for 400 ms.
const suiteTTL = 2 * time.Second

func TestConformance(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := locktest.Fixture{TTL: suiteTTL, Open: func(t locktest.TB) locktest.Service { return service(t, open(t)) }}
			if name == "mariadb" {
				f.Skip = locktest.Brief
			}
			locktest.Run(t, f)
		})
	}
}

func service(t locktest.TB, d *database) locktest.Service {
	b := d.backend(t)
	return locktest.Service{
		Backend: b,
		Another: func() distributed.Backend { return d.backend(t) },
		Expire:  func(key string) { expire(t, b, key) },
		Forget: func(key string) {
			name, _ := storedName(key)
			q := b.dialect.compile(b.st().text(`DELETE FROM {locks} WHERE name = $1`))
			if _, err := b.db.ExecContext(context.Background(), q.text, q.args(name)...); err != nil {
				t.Fatalf("%v", err)
			}
		},
		Cut: d.wire.setCut,
	}
}

// expire takes the lock away from all that hold it.
func expire(t locktest.TB, b *Backend, key string) {
	name, _ := storedName(key)
	err := b.change(context.Background(), name, func(s *state) {
		s.owner, s.dirty = "", true
		s.discard(func(e *entry) bool { return e.holds })
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
}
