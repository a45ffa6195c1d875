package redislock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/identity"
)

func TestReadStanding(t *testing.T) {
	sent := time.Now()
	for reply, want := range map[string]standing{
		"1795259433090872":              {kind: hasLease, grant: grant{fence: 1795259433090872000, count: 1000, since: sent}},
		"lost 1795259433090872":         {kind: hasLease, grant: grant{fence: 1795259433090872000, count: 1000, since: sent}, prevLost: true},
		"lease 1795259433090872001 7 1": {kind: hasLease, grant: grant{fence: 1795259433090872001, count: 7, contended: true, since: sent}},
		"lost place 2 1500 0":           {kind: hasPlace, position: position{rank: 2, rest: 1500 * time.Millisecond}, prevLost: true},
		"place 0 -1 1":                  {kind: hasPlace, position: position{rest: -time.Millisecond, foreign: true}},
		"held 100":                      {kind: heldByOther},
		"old":                           {kind: outdated},
		"gone":                          {kind: "gone"},
		"sixteen letters.":              {kind: "sixteen"},
		"":                              {},
	} {
		require.Equal(t, want, readStanding(reply, sent), reply)
	}
}

func TestReadMessage(t *testing.T) {
	const named = "1200000000000000000007" // 12, and 20 random digits
	id := identity.Attempt{Number: 12, Random: 7}
	for text, want := range map[string]message{
		"g x " + named + " a1 1795259433090872000 1000 0 shop:a b": {
			kind: grantMessage, attempt: id, instance: "a1", key: "shop:a b", grant: grant{fence: 1795259433090872000, count: 1000},
		},
		"g s " + named + " a1 5 1 1 k": {
			kind: grantMessage, attempt: id, mode: distributed.Shared, instance: "a1", key: "k", grant: grant{fence: 5, count: 1, contended: true},
		},
		"w " + named:         {kind: contendedMessage, attempt: id},
		"p " + named + " 30": {kind: checkMessage, attempt: id, delay: 30 * time.Millisecond},
	} {
		m, ok := readMessage(text)
		require.True(t, ok, text)
		require.Equal(t, want, m, text)
	}
	for _, text := range []string{"", "p 0 0", "w", "w x", "g x " + named + " a1 5 1 1", "g x no a1 5 1 1 k", "other " + named} {
		_, ok := readMessage(text)
		require.False(t, ok, text)
	}
}
