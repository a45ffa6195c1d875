package redlock

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/identity"
)

// detached detaches a new lease of a key, and returns its id and token.
func detached(t *testing.T, b *Backend, key string, lasts time.Duration) (id, token string) {
	t.Helper()
	id = rand.Text()
	require.NoError(t, b.Detach(t.Context(), leaseOf(t, b, request(key, "a")), id, lasts))
	return id, tokenOf(identity.Attempt{Number: detachedNumber}, processOf(distributed.DetachedName(id), ""))
}

// Each adopter is near to another server, so each has a vote. One of them wins, also if no server is to spare.
func TestASplitAdoption(t *testing.T) {
	t.Parallel()
	for _, up := range []int{2, 3} {
		t.Run(fmt.Sprint(up, " of 3 servers"), func(t *testing.T) {
			t.Parallel()
			s := start(t, 3)
			near := make([]*Backend, up)
			for i := range near {
				b, links := ownLinks(t, s)
				near[i] = b
				for j, link := range links {
					if j >= up {
						link.Redirect("127.0.0.1:1") // nobody listens there
					} else {
						link.SetDelay(time.Duration((j-i+up)%up) * 20 * time.Millisecond)
					}
				}
			}
			id, token := detached(t, near[0], "k", time.Minute)
			for _, one := range s.all[:up] {
				require.Equal(t, token, one.Do("GET", "k"), "the far ones were waited for")
			}
			errs, won := make([]error, up), 0
			var adopters sync.WaitGroup
			for i, b := range near {
				adopters.Go(func() { _, errs[i] = b.Adopt(t.Context(), request("k", fmt.Sprint(i)), id) })
			}
			adopters.Wait()
			for _, err := range errs {
				if err == nil {
					won++
				} else {
					require.ErrorIs(t, err, distributed.ErrLeaseLost)
				}
			}
			require.Equal(t, 1, won, "%v", errors.Join(errs...))
		})
	}
}

// An adopter dies when one server has voted for it. If that is one of three, the next has a majority without it. If it is one of the two
// that had the vote, the next gives way to the older one. Then the lock is free when the detached lease would have expired.
func TestAnAdopterDies(t *testing.T) {
	s, b := three(t)
	const lasts = 20 * time.Second // the window is longer
	for _, had := range []int{3, 2} {
		key := fmt.Sprint("k", had)
		id, token := detached(t, b, key, lasts)
		if had == 2 {
			s.all[2].Do("DEL", key)
		}
		dead := newBid(b, request(key, "dead"))
		take := dead.transferCall(token, dead.token, "")
		require.Contains(t, says(t, b.nodes[0], take), " vote ")
		require.LessOrEqual(t, s.all[0].Do("PTTL", key), lasts.Milliseconds())
		l, err := b.Adopt(t.Context(), request(key, "b"), id)
		if had == 3 {
			require.NoError(t, err)
			release(t, l)
			continue
		}
		require.ErrorIs(t, err, distributed.ErrLeaseLost)
		require.Eventually(t, func() bool { return s.all[1].Do("GET", key) == token }, patience, time.Millisecond, "it is given back")
		require.LessOrEqual(t, s.all[1].Do("PTTL", key), lasts.Milliseconds())
		s.all[0].Do("DEL", key) // it expires
		require.Contains(t, says(t, b.nodes[0], take), " held ", "it comes late")
		require.Nil(t, s.all[0].Do("GET", key))
	}
}

// A younger adopter has a majority. The oldest has lost if that is so again, and takes what was given back.
func TestTheOldestAdopterIsLate(t *testing.T) {
	s, b := three(t)
	_, token := detached(t, b, "k", time.Minute)
	oldest, younger := known(b, request("k", "o")), newBid(b, request("k", "y"))
	require.True(t, older(younger.token, token), "what is split is not for a detached lease")
	for _, n := range b.nodes[1:] {
		require.Contains(t, says(t, n, younger.transferCall(token, younger.token, "")), " vote ")
	}
	asks := func(before string) (driver.Standing, string, error) {
		_, err := oldest.takeOver("adopt", b.stray(token, "k"), "").wait(t.Context(), patience)
		require.NoError(t, err)
		return oldest.took(before)
	}
	_, leader, err := asks("")
	require.NoError(t, err)
	require.Equal(t, younger.token, leader)
	_, _, err = asks(leader)
	require.ErrorIs(t, err, distributed.ErrLeaseLost)
	for _, n := range b.nodes[1:] {
		says(t, n, younger.transferCall(younger.token, token, ""))
	}
	got, _, err := asks(leader)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, got.Kind)
	s.all[0].Do("SET", brokenKey("k"), " "+token+" \n")
	says(t, b.nodes[0], oldest.transferCall(oldest.token, token, ""))
	require.Equal(t, oldest.token, s.all[0].Do("GET", "k"), "a broken lease gets nothing back")
}

// A lease that is lost leaves no votes to the detached one.
func TestALostLeaseIsNotDetached(t *testing.T) {
	s, b := three(t)
	l := leaseOf(t, b, request("k", "a"))
	for _, one := range s.all {
		require.Eventually(t, func() bool { return one.Do("GET", "k") == bidOf(l).token }, patience, time.Millisecond)
	}
	s.all[1].Do("DEL", "k")
	s.all[2].Do("DEL", "k")
	require.ErrorIs(t, b.Detach(t.Context(), l, rand.Text(), time.Minute), distributed.ErrLeaseLost)
	require.Eventually(t, func() bool { return s.all[0].Do("GET", "k") == nil }, patience, time.Millisecond)
}

// What two servers have done and not answered is answered again. The third is away, and does not keep the detached lease when it is back.
func TestATransferWithoutAnswer(t *testing.T) {
	s, b := three(t)
	lose := func() {
		for _, p := range s.proxies[:2] {
			p.LoseReply(transferScript.SHA)
		}
	}
	lost := func() bool { return s.proxies[0].Lost() && s.proxies[1].Lost() }
	lose()
	const lasts = 50 * time.Second
	id, token := detached(t, b, "k", lasts)
	require.True(t, lost())
	require.Equal(t, token, s.all[2].Do("GET", "k"))
	lose()
	s.proxies[2].Forward("127.0.0.1:1") // nobody listens there
	l, err := b.Adopt(t.Context(), request("k", "b", lasting(3*time.Minute)), id)
	require.NoError(t, err)
	require.True(t, lost())
	require.LessOrEqual(t, time.Until(bidOf(l).until), lasts, "its window is longer")
	s.proxies[2].Redirect(s.all[2].Addr)
	require.Eventually(t, func() bool { return s.all[2].Do("GET", "k") != token }, patience, time.Millisecond)
	release(t, l)
}
