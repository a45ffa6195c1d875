package memcachelock

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
)

func TestNewWantsConsent(t *testing.T) {
	_, err := New(memcache.New("127.0.0.1:1"))
	require.ErrorContains(t, err, "WithUnfenced")
	_, err = New(nil, WithUnfenced())
	require.Error(t, err)
	_, err = New(memcache.New("127.0.0.1:1"), nil)
	require.Error(t, err)
	b, err := New(memcache.New("127.0.0.1:1"), WithUnfenced())
	require.NoError(t, err)
	require.NoError(t, b.Close())
}

func TestRequestsOutOfBounds(t *testing.T) {
	b := open(t, "127.0.0.1:1")
	for _, req := range []distributed.Request{
		{Instance: "a", TTL: ttl}, {Key: "k", TTL: ttl},
		{Key: "k", Instance: "a", TTL: distributed.MinTTL - 1}, {Key: "k", Instance: "a", TTL: maxTTL + 1},
	} {
		_, _, err := b.Enter(t.Context(), req)
		require.Error(t, err)
		require.NotErrorIs(t, err, distributed.ErrUnavailable)
	}
}

// A process of a version without permits reads and writes these fields: it keeps a permit's limit, and lets none in beside another
// owner.
func TestPermitsBesideAVersionWithoutThem(t *testing.T) {
	c := newClaim(distributed.Request{Instance: "i", Mode: distributed.Shared, Limit: 8, TTL: ttl})
	require.Equal(t, 8, c.limit())
	require.True(t, c.shares())
	require.False(t, c.Shared)
	require.Zero(t, newClaim(distributed.Request{Instance: "i", Mode: distributed.Shared, TTL: ttl}).limit())
	s := state{Owners: []claim{c}}
	require.True(t, s.admits(c))
	require.True(t, s.admits(claim{Shared: true}))
	require.False(t, s.admits(claim{}))
	s.Owners = slices.Repeat([]claim{c}, 8)
	require.False(t, s.admits(c))
}

// An expiry of more than 30 days would be taken for a date, and one that is too short would end a lease before its time.
func TestExpiry(t *testing.T) {
	for ttl, want := range map[time.Duration]int32{
		distributed.MinTTL: 3, 500 * time.Millisecond: 3, 501 * time.Millisecond: 4, 5 * time.Second: 12, maxTTL: 28*24*3600 + 2,
	} {
		s := state{Owners: []claim{{TTL: time.Millisecond}}, Queue: []claim{{TTL: ttl}}}
		_, seconds := s.encode()
		assert.Equal(t, want, seconds, "%v", ttl)
		assert.Less(t, seconds, int32(30*24*3600))
	}
	_, seconds := new(state).encode()
	assert.Negative(t, seconds, "nobody has the lock: the item goes")
}

func TestItemKeys(t *testing.T) {
	assert.Equal(t, "wllock:shop:product:1000", itemKey("shop:product:1000"))
	fits := strings.Repeat("k", maxKey-len(plain))
	assert.Equal(t, plain+fits, itemKey(fits))
	seen := map[string]string{}
	for _, key := range []string{fits, fits + "k", "a b", "a\x7fb", "a\nb", "#" + fits, strings.Repeat("\u4ef7", 200)} {
		item := itemKey(key)
		assert.LessOrEqual(t, len(item), maxKey)
		assert.False(t, strings.ContainsAny(item, " \n\x7f"))
		assert.Empty(t, seen[item])
		seen[item] = key
	}
	assert.NotEqual(t, itemKey(itemKey("a b")), itemKey("a b"))
}

// An owner is dead when its beat has stood still for its period since it was read first, and not by anybody's clock but the
// reader's.
func TestReap(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	s := state{Owners: []claim{{ID: "a", TTL: ttl}}, Queue: []claim{{ID: "b", TTL: ttl}, {ID: "c", TTL: ttl}}}
	seen := sightings{}
	assert.False(t, seen.reap(&s, at(0)))
	assert.False(t, seen.reap(&s, at(ttl/2)), "a grant has its claim window")
	s.Owners[0].Beat = 1
	assert.False(t, seen.reap(&s, at(ttl/2+1)), "it was claimed")
	assert.False(t, seen.reap(&s, at(ttl/2+1+ttl)))
	assert.True(t, seen.reap(&s, at(ttl/2+1+ttl+1)))
	assert.Equal(t, "b", s.Owners[0].ID, "the head of the queue is granted")
	assert.Equal(t, "c", s.Queue[0].ID)
	assert.False(t, seen.reap(&s, at(10*ttl)), "one that was read for the first time")
	assert.Len(t, seen, 1)
	assert.True(t, seen.reap(&s, at(10*ttl+ttl/2+1)), "and was not claimed")
}

// The claim of an old grant counts once it is written. A waiter that counted from a write that failed, or that another's had
// overtaken, believed in its lease for W while the others still counted from the beat before, and let the next one in.
func TestAClaimThatIsNotWrittenDoesNotCount(t *testing.T) {
	granted := time.Now().Add(-distributed.ClaimWindow(ttl))
	p := &place{claim: claim{ID: "a", Instance: "i", TTL: ttl}, seen: sightings{}, waited: granted}
	onServer := func() *state { return &state{Owners: []claim{p.claim}} }
	require.True(t, p.step(onServer(), time.Now()), "it is claimed")
	require.Equal(t, granted, p.waited, "not yet")
	again := onServer() // the cas has failed
	claimed := time.Now()
	require.True(t, p.step(again, claimed), "it is claimed once more")
	require.Equal(t, 1, again.Owners[0].Beat)
	p.written()
	require.False(t, p.waited.Before(claimed), "counts from when it was sent")
}
