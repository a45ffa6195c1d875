package zklock

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// makeRoots carries out the lines of docs/zookeeper.md for the systems shop and bank, below a node of this test.
func makeRoots(t *testing.T) (parent string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/zookeeper.md")
	require.NoError(t, err)
	parent = newRoot()
	operator := plainConn(t, zktest.Shared(t).Addr)
	var lines int
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(strings.ReplaceAll(line, "/locks", parent))
		if !strings.HasPrefix(line, "    ") || len(f) < 2 {
			continue
		}
		switch f[0] {
		case "addauth":
			err = operator.AddAuth(f[1], []byte(f[2]))
		case "create":
			_, err = operator.Create(f[1], nil, 0, zk.WorldACL(zk.PermAll))
			if err == nil && path.Base(f[1]) == "shop" {
				_, err = operator.Create(path.Dir(f[1])+"/bank", nil, 0, zk.WorldACL(zk.PermAll))
			}
		case "setAcl":
			acl := parseACL(t, f[2])
			_, err = operator.SetACL(f[1], acl, -1)
			if err == nil && path.Base(f[1]) == "shop" {
				require.Equal(t, zk.DigestACL(acl[0].Perms, "shop", "change-me"), acl, "the digest in the docs")
				_, err = operator.SetACL(path.Dir(f[1])+"/bank", zk.DigestACL(acl[0].Perms, "bank", "change-me"), -1)
			}
		default:
			continue
		}
		require.NoError(t, err, line)
		lines++
	}
	require.Equal(t, 5, lines)
	return parent
}

// parseACL parses scheme:id:rights.
func parseACL(t *testing.T, text string) []zk.ACL {
	t.Helper()
	scheme, rest, _ := strings.Cut(text, ":")
	last := strings.LastIndex(rest, ":")
	acl := zk.ACL{Scheme: scheme, ID: rest[:last]}
	for _, r := range rest[last+1:] {
		right, known := map[rune]int32{'c': zk.PermCreate, 'd': zk.PermDelete, 'r': zk.PermRead, 'w': zk.PermWrite, 'a': zk.PermAdmin}[r]
		require.True(t, known, text)
		acl.Perms |= right
	}
	return []zk.ACL{acl}
}

// victims are instances of bank.
func victims(t *testing.T, parent string) testlocker.Victims {
	t.Helper()
	bank := func() *Backend { return open(t, zktest.Shared(t).Addr, parent+"/bank", WithAuth("bank", "change-me")) }
	return testlocker.Victims{One: bank(), Other: bank(), Key: "bank:acct:9", Load: "bank:load"}
}

// attacker is the user that attacks.
const attacker = "shop:change-me"

// attacks are what another system's user may try on a node, each of which is refused.
func attacks(c *zk.Conn, root, node string) map[string]func() error {
	mine := zk.DigestACL(zk.PermAll, "shop", "change-me")
	create := func(at string, flags int32) func() error {
		return func() error { _, err := c.Create(at, nil, flags, mine); return err }
	}
	multi := func(ops ...any) func() error { return func() error { _, err := c.Multi(ops...); return err } }
	return map[string]func() error{
		"read":       func() error { _, _, err := c.Get(node); return err },
		"watch":      func() error { _, _, _, err := c.GetW(node); return err },
		"write":      func() error { _, err := c.Set(node, []byte("ghost"), -1); return err },
		"delete":     func() error { return c.Delete(node, -1) },
		"list":       func() error { _, _, err := c.Children(node); return err },
		"watch list": func() error { _, _, _, err := c.ChildrenW(node); return err },
		"read ACL":   func() error { _, _, err := c.GetACL(node); return err },
		"own":        func() error { _, err := c.SetACL(node, mine, -1); return err },
		"squat root": create(path.Dir(root)+"/new", 0),
		"sit below":  create(node+"/x", 0),
		"queue":      create(node+"/x-aaaaaaaa-", zk.FlagEphemeral|zk.FlagSequence),
		"container":  func() error { _, err := c.CreateContainer(node+"/x", nil, zk.FlagContainer, mine); return err },
		"multi":      multi(&zk.CheckVersionRequest{Path: node, Version: -1}, &zk.DeleteRequest{Path: node, Version: -1}),
		"multi both": multi(&zk.CreateRequest{Path: path.Dir(root) + "/shop/x", Acl: mine, Flags: zk.FlagSequence}, &zk.SetDataRequest{Path: node, Version: -1}),
	}
}

// try makes an attack again where a busy machine made its answer late.
func try(t *testing.T, name string, attack func() error) {
	t.Helper()
	err := attack()
	for start := time.Now(); (errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer)) && time.Since(start) < patience; {
		err = attack()
	}
	require.ErrorIs(t, err, zk.ErrNoAuth, name)
}

// TestAnotherSystemsUserHasNoRightToALock: the documented ACLs keep systems apart.
func TestAnotherSystemsUserHasNoRightToALock(t *testing.T) {
	t.Parallel()
	attackAll(t, 1)
}

// TestAnotherSystemsUserDisturbsNobody: the same, thousands of times.
func TestAnotherSystemsUserDisturbsNobody(t *testing.T) {
	testscope.Long(t, "a storm of requests")
	attackAll(t, testscope.Scale(90, 1800))
}

// attackAll sends all requests so many times.
func attackAll(t *testing.T, rounds int) {
	t.Helper()
	parent := makeRoots(t)
	own := open(t, zktest.Shared(t).Addr, parent+"/shop", WithAuth("shop", "change-me"))
	release(t, asker(t, own, "shop:1").Lease("a"))
	require.NoError(t, own.Ping(t.Context()))
	_, _, err := own.List(t.Context(), "", "", 10)
	require.NoError(t, err)
	shop := userConn(t, attacker)
	longest := victims(t, parent).Undisturbed(t, func(held distributed.Lease, p distributed.Place) {
		root, node := parent+"/bank", claimOf(held).path()
		targets := []string{root, path.Dir(node), node, claimOf(p).path()} // also the nodes of a lock, a holder and a waiter
		for range rounds {
			for _, node := range targets {
				for name, attack := range attacks(shop, root, node) { // in any order
					try(t, name, attack)
				}
				for _, attack := range attacks(shop, root, strings.Replace(node, "/bank", "/shop", 1)) {
					_ = attack() // on nodes of its own that have such names: whatever comes of it
				}
			}
		}
	})
	testscope.InTime(t, longest, 3*time.Second, "the longest wait: the lock was passed on by watches")
}

// TestAStolenSessionIsNoticed: what no ACL prevents. Somebody without a user ends a session: its leases and places are lost, the next holder
// has a greater fence, and the next request gets another session.
func TestAStolenSessionIsNoticed(t *testing.T) {
	t.Parallel()
	v := victims(t, makeRoots(t))
	one := asker(t, v.One, v.Key)
	l, p := one.Lease("a"), asker(t, v.Other, v.Key).Place("b")
	elsewhere, waits := asker(t, v.Other, "bank:acct:10").Lease("b"), asker(t, v.One, "bank:acct:10").Place("a")
	before := fence(t, l)
	shop, node := userConn(t, attacker), claimOf(l).path()
	require.Eventually(t, func() bool {
		found, stat, err := shop.Exists(node) // takes no right, and shows whose it is
		if err == nil && found {
			steal(t, stat.EphemeralOwner)
		}
		return err == nil && !found
	}, patience, time.Millisecond)
	next := granted(t, p)
	lost(t, l)
	require.True(t, granted(t, waits) == nil, "granted")
	require.Greater(t, fence(t, next), before)
	release(t, next)
	release(t, elsewhere)
	release(t, one.Lease("a"))
}

// steal connects to a session by its number, and closes it: its password is made from that. Both requests go out at once, for
// its owner takes it back.
func steal(t *testing.T, session int64) {
	t.Helper()
	c, err := net.Dial("tcp", zktest.Shared(t).Addr)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	connect := binary.BigEndian.AppendUint32(make([]byte, 4+8), 10_000) // version, zxid, time-out
	connect = binary.BigEndian.AppendUint64(connect, uint64(session))
	connect = append(binary.BigEndian.AppendUint32(connect, 16), passwordOf(session)...)
	const closeSession = -11
	end := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 1}, uint32(0xffffffff+closeSession+1))
	var both []byte
	for _, request := range [][]byte{connect, end} {
		both = append(binary.BigEndian.AppendUint32(both, uint32(len(request))), request...)
	}
	_, err = c.Write(both)
	require.NoError(t, err)
	_, _ = io.ReadAll(c)
}

// passwordOf is the first 16 bytes of Java's generator of random numbers, with a seed that ZooKeeper makes from the session.
func passwordOf(session int64) (password []byte) {
	const factor, bits, secret = 0x5DEECE66D, 1<<48 - 1, 0xB3415C00
	state := (uint64(session) ^ secret ^ factor) & bits
	for len(password) < 16 {
		state = (state*factor + 11) & bits
		password = binary.LittleEndian.AppendUint32(password, uint32(state>>16))
	}
	return password
}
