package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/distributed/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// impatient is a backend that treats every request as NoWait.
type impatient struct{ *memlock.Backend }

func (b impatient) Enter(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
	r.NoWait = true
	return b.Backend.Enter(ctx, r)
}

func ExampleCase_Failures() {
	fixture := locktest.Fixture{Open: func(locktest.TB) locktest.Service {
		return locktest.Service{Backend: impatient{memlock.New()}}
	}}
	for _, c := range locktest.Cases()[:3] {
		fmt.Printf("%s: %d complaints\n", c.Name, len(c.Failures(fixture)))
	}
	// Output:
	// an exclusive lease excludes everybody else: 1 complaints
	// an instance is excluded by its own lease too: 1 complaints
	// first come first served across instances: 1 complaints
}

// A correct backend passes, with and without the optional abilities of its service.
func TestRightBackend(t *testing.T) {
	for name, open := range map[string]func(locktest.TB) locktest.Service{
		"only a backend": func(locktest.TB) locktest.Service { return locktest.Service{Backend: memlock.New()} },
		"without fences or notices": func(locktest.TB) locktest.Service {
			return locktest.Service{Backend: bare{memlock.New()}}
		},
		"two processes": func(locktest.TB) locktest.Service {
			b := memlock.New()
			return locktest.Service{Backend: b, Another: func() distributed.Backend { return &process{Backend: b} }}
		},
	} {
		for _, c := range locktest.Cases() {
			if name == "two processes" && strings.Contains(c.Name, "Close") {
				continue // it is the service that closes here
			}
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					assert.Empty(t, c.Failures(locktest.Fixture{Open: open}))
				})
			})
		}
	}
}

// process lends a Backend to another instance.
type process struct{ distributed.Backend }

func (*process) Close() error { return nil }

// bare grants leases that have only what the contract requires, and no fences.
type bare struct{ distributed.Backend }

func (b bare) Enter(ctx context.Context, r distributed.Request) (distributed.Lease, distributed.Place, error) {
	if l, ok := distributed.As[*bareLease](r.Prev); ok {
		r.Prev = l.Lease
	}
	l, p, err := b.Backend.Enter(ctx, r)
	if l != nil {
		l = &bareLease{l}
	}
	return l, p, err
}

type bareLease struct{ distributed.Lease }

func (*bareLease) NextFence() (uint64, bool)    { return 0, false }
func (*bareLease) Refill(context.Context) error { return errors.ErrUnsupported }

func TestCasesAreNamedApart(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range locktest.Cases() {
		assert.False(t, seen[c.Name], c.Name)
		seen[c.Name] = true
	}
}

// A failure ends the case, and what it has opened is closed.
func TestFailureCleansUp(t *testing.T) {
	closed := 0
	fixture := locktest.Fixture{TTL: time.Second, Open: func(t locktest.TB) locktest.Service {
		t.Cleanup(func() { closed++ })
		return locktest.Service{Backend: impatient{memlock.New()}}
	}}
	assert.NotEmpty(t, locktest.Cases()[0].Failures(fixture))
	assert.Equal(t, 1, closed)
}
