package ratelimit

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var five = Policy{Name: "caller", Quota: 5, Window: time.Second}

func take(t testing.TB, l *Local, p Policy, id, request string) Result {
	t.Helper()
	r, err := l.Take(t.Context(), p, id, request)
	require.NoError(t, err)
	return r
}

func TestLocalCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocal()
		for left := 4; left >= 0; left-- {
			r := take(t, l, five, "a", "")
			require.Equal(t, Result{Allowed: true, Remaining: left, ResetAfter: time.Duration(5-left) * 200 * time.Millisecond}, r)
		}
		require.Equal(t, Result{RetryAfter: 200 * time.Millisecond, ResetAfter: time.Second}, take(t, l, five, "a", ""))
		require.True(t, take(t, l, five, "b", "").Allowed, "another identity")

		time.Sleep(200 * time.Millisecond)
		require.True(t, take(t, l, five, "a", "").Allowed, "the quota refills evenly")
		require.False(t, take(t, l, five, "a", "").Allowed)
		time.Sleep(time.Second)
		require.Equal(t, 4, take(t, l, five, "a", "").Remaining)
	})
}

func TestLocalBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := NewLocal(), Policy{Name: "x", Quota: 60, Window: time.Minute, Burst: 2}
		require.True(t, take(t, l, p, "a", "").Allowed)
		require.True(t, take(t, l, p, "a", "").Allowed)
		require.Equal(t, time.Second, take(t, l, p, "a", "").RetryAfter)
	})
}

func TestLocalRetryIsChargedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocal()
		require.Equal(t, 4, take(t, l, five, "a", "r1").Remaining)
		require.Equal(t, 4, take(t, l, five, "a", "r1").Remaining, "its retry")
		require.Equal(t, 3, take(t, l, five, "a", "r1").Remaining, "a third time")
		require.Equal(t, 3, take(t, l, five, "a", "r1").Remaining, "its retry")
		for range 3 {
			require.True(t, take(t, l, five, "a", "").Allowed)
		}
		require.False(t, take(t, l, five, "a", "r2").Allowed)
		time.Sleep(200 * time.Millisecond)
		require.True(t, take(t, l, five, "a", "r2").Allowed)
		require.True(t, take(t, l, five, "a", "r2").Allowed, "a retry passes though the quota is used up")
		require.False(t, take(t, l, five, "a", "r2").Allowed)
		require.Equal(t, 4, take(t, l, five, "b", "r1").Remaining, "of another identity")
	})
}

func TestLocalRemembersRetriesForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocal()
		take(t, l, five, "a", "r")
		time.Sleep(50 * time.Second)
		take(t, l, five, "b", "") // removes idle identities
		require.Equal(t, 5, take(t, l, five, "a", "r").Remaining)
	})
}

// A retry is free within the time that the policy remembers requests, also where the identity itself is remembered for longer.
func TestLocalRetryIsFreeForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocal()
		take(t, l, five, "a", "r")
		time.Sleep(59 * time.Second)
		take(t, l, five, "a", "") // the identity is in use
		require.Equal(t, 4, take(t, l, five, "a", "r").Remaining, "within the minute")
		take(t, l, five, "a", "r")
		time.Sleep(59 * time.Second)
		take(t, l, five, "a", "")
		time.Sleep(time.Second)
		require.Equal(t, 4, take(t, l, five, "a", "r").Remaining, "after it")
	})
}

// A policy that is changed holds at once.
func TestLocalNewQuotaHoldsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, daily := NewLocal(), Policy{Name: "caller", Quota: 1, Window: 24 * time.Hour}
		take(t, l, daily, "a", "")
		require.False(t, take(t, l, daily, "a", "").Allowed)
		require.Equal(t, 200*time.Millisecond, take(t, l, five, "a", "").RetryAfter)
		time.Sleep(time.Second)
		require.Equal(t, 4, take(t, l, five, "a", "").Remaining)
		require.Zero(t, take(t, l, daily, "a", "").Remaining)
		require.False(t, take(t, l, daily, "a", "").Allowed)
	})
}

func TestLocalRetryMemoryIsBounded(t *testing.T) {
	l, many := NewLocal(), Policy{Name: "x", Quota: 1000, Window: time.Hour}
	for i := range paidMemory + 1 {
		take(t, l, many, "a", strconv.Itoa(i))
	}
	before := take(t, l, many, "a", "1").Remaining
	require.Equal(t, before-1, take(t, l, many, "a", "0").Remaining, "the oldest is forgotten")
	require.Len(t, l.buckets["a"].Value.(*bucket).paid, paidMemory)
}

func TestLocalForgetsTheIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocal()
		for i := range 1000 {
			take(t, l, five, strconv.Itoa(i), "r")
		}
		time.Sleep(2 * time.Minute)
		for range 600 {
			take(t, l, five, "a", "")
		}
		require.Len(t, l.buckets, 1)
		require.Equal(t, 1, l.recent.Len())
	})
}

func TestLocalIdentitiesAreBounded(t *testing.T) {
	l := NewLocal(WithIdentities(10))
	for i := range 1000 {
		take(t, l, five, "a", "") // always the one but last
		take(t, l, five, strconv.Itoa(i), "")
	}
	require.Len(t, l.buckets, 10)
	require.False(t, take(t, l, five, "a", "").Allowed, "an active identity is not forgotten")
}

func TestLocalIsExactUnderConcurrency(t *testing.T) {
	l, p := NewLocal(), Policy{Name: "x", Quota: 100, Window: time.Hour}
	var allowed atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if r, _ := l.Take(t.Context(), p, "a", ""); r.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 100, allowed.Load())
}

func BenchmarkLocal(b *testing.B) {
	l, p := NewLocal(), Policy{Name: "x", Quota: 1 << 30, Window: time.Second}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = Take(b.Context(), l, []Charge{{p, "caller"}}, "")
	}
}
