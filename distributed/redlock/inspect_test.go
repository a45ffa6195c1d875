package redlock

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testscope"
)

func inspected(t *testing.T, b *Backend, key string) distributed.Inspection {
	t.Helper()
	found, err := b.Inspect(t.Context(), key)
	require.NoError(t, err)
	return found
}

func listed(t *testing.T, b *Backend, prefix string, limit int) (keys []string) {
	t.Helper()
	for cursor := ""; ; {
		page, next, err := b.List(t.Context(), prefix, cursor, limit)
		require.NoError(t, err)
		for _, found := range page {
			keys = append(keys, found.Key)
		}
		if next == "" {
			slices.Sort(keys)
			return keys
		}
		cursor = next
	}
}

// A minority that is away, or that has other votes, changes nothing; without a majority nothing is told.
func TestInspectionOfAMajority(t *testing.T) {
	testscope.Long(t, "takes 4 s")
	t.Parallel()
	s := start(t, 5)
	b := s.open()
	l := leaseOf(t, b, request("shop:a", "a"))
	require.Eventually(t, func() bool { return s.all[4].Do("GET", "shop:a") != nil }, patience, time.Millisecond) // Enter waits for a majority
	s.proxies[0].SetHalfOpen(true)
	s.all[1].Do("SET", "shop:a", "wllock:1:OTHER")
	s.all[1].Do("SET", "shop:b", "wllock:1:OTHER") // a vote of one server
	found := inspected(t, b, "shop:a")
	require.Equal(t, bidOf(l).token, found.State)
	require.False(t, inspected(t, b, "shop:b").Held())
	require.Equal(t, []string{"shop:a"}, slices.Compact(listed(t, b, "shop:", 10))) // it is young
	record, err := b.Break(t.Context(), found, "me", "it is stuck")
	require.NoError(t, err)
	<-l.Lost()
	require.True(t, record.At.Equal(inspected(t, b, "shop:a").Broken.At))
	s.proxies[1].SetHalfOpen(true)
	s.proxies[2].SetHalfOpen(true)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = b.Inspect(ctx, "shop:a")
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	_, _, err = b.List(ctx, "shop:", "", 10)
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	for _, p := range s.proxies {
		p.SetHalfOpen(false)
	}
}

// Pages of all servers have each lock once, also one that some servers lack.
func TestListDedupes(t *testing.T) {
	s, b := three(t)
	var want []string
	for i := range 250 {
		key := fmt.Sprintf("shop:[%03d", i)
		want = append(want, key)
		for n, one := range s.all {
			if n != i%4 {
				one.Do("SET", key, "wllock:1:OTHER", "PX", 60_000)
			}
		}
	}
	leaseOf(t, b, request("shop;", "a"))
	require.Equal(t, want, listed(t, b, "shop:", 10))
	_, _, err := b.List(t.Context(), "shop:", "9 ", 10)
	require.ErrorContains(t, err, "no cursor")
	_, _, err = b.List(t.Context(), "shop:", "", 0)
	require.ErrorContains(t, err, "want 1 or more")
}

// A server that has ended a lease does not vote for it again, though it is free: renewals that run while a Break goes from server
// to server would win its votes back, one after the other.
func TestABrokenLeaseWinsNoVotesBack(t *testing.T) {
	t.Parallel()
	s := start(t, 5)
	b, operator := s.open(WithQuorumFences()), s.open(WithQuorumFences())
	l := leaseOf(t, b, request("k", "a"))
	_, _ = l.NextFence()
	require.NoError(t, l.Refill(t.Context()))
	found := inspected(t, operator, "k")
	c, record := breaking(t, operator, "k", found.State)
	for i := range b.quorum {
		require.Equal(t, "broken", says(t, operator.nodes[i], c))
		for range 3 { // the first finds the vote gone; without the record the others would win it back
			<-bidOf(l).extend().decided
		}
		require.Equal(t, i < 2, l.Healthy(), "after %d servers", i+1)
	}
	next := leaseOf(t, operator, request("k", "b"))
	require.NoError(t, next.Refill(t.Context()))
	fence, ok := next.NextFence()
	require.True(t, ok)
	require.Greater(t, fence, record.Fence)
}
