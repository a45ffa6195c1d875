package stack_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testseed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = testlocker.TTL

var (
	newLocker = testlocker.New
	lockerOn  = testlocker.On
	hold      = testlocker.Hold
	nothing   = testlocker.Nothing
	never     = testlocker.Never
	lostAfter = testlocker.LostAfter
)

// crowd runs n callers at the same time, each with a random source of its own, made from the seed of the test.
func crowd(t *testing.T, n int, call func(i int, r *rand.Rand)) {
	t.Helper()
	seed := testseed.Seed(t)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { call(i, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	all.Wait()
}

// mixed opens instances with different settings.
func mixed(instance func(...wllock.Option) *wllock.Locker, ttl time.Duration) (all []*wllock.Locker) {
	for _, settings := range [][]wllock.Option{
		{wllock.WithMaxHandoffs(0)},
		{wllock.WithMaxHandoffs(3), wllock.WithLinger(time.Millisecond)},
		{wllock.WithMaxTenure(2 * time.Millisecond)},
	} {
		all = append(all, instance(append(settings, wllock.WithLeaseTTL(ttl))...))
	}
	return all
}
