package memcachelock

import (
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

// An expiry of more than 30 days would be taken for a date, and one that is too short would end a lease before its time.
func TestExpiry(t *testing.T) {
	for ttl, want := range map[time.Duration]int32{
		distributed.MinTTL: 3, 500 * time.Millisecond: 3, 501 * time.Millisecond: 4, 5 * time.Second: 12, maxTTL: 28*24*3600 + 2,
	} {
		assert.Equal(t, want, seconds(2*ttl), "%v", ttl)
		assert.Less(t, seconds(2*ttl), int32(30*24*3600))
	}
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
