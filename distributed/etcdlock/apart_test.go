package etcdlock

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

// apart is a server with the documented users of two systems: bank, whose locks are passed on, and shop, whose user attacks them.
type apart struct {
	addr       string
	root, shop *clientv3.Client
	strict     bool // the server checks the rights to all that is in a transaction, to leases, and to alarms
}

const bankPrefix, shopPrefix = "/locks/bank", "/locks/shop"

func startApart(t *testing.T) *apart {
	t.Helper()
	_, flags, found := strings.Cut(page(t), "`--auto-compaction-mode=")
	require.True(t, found)
	flags, _, _ = strings.Cut("--auto-compaction-mode="+flags, "`") // the server takes what docs/etcd.md says
	a := &apart{addr: etcdtest.Start(t, append(strings.Fields(flags), "--bcrypt-cost=4")...).Addr}
	c := plainClient(t, a.addr)
	status, err := c.Status(t.Context(), a.addr)
	require.NoError(t, err)
	a.strict = isStrict(t, status.Version)
	etcdctl(t, c, "user add root:change-me", "role add root", "user grant-role root root")
	for _, line := range userLines(t) {
		etcdctl(t, c, line, strings.ReplaceAll(line, "shop", "bank"))
	}
	_, err = c.AuthEnable(t.Context())
	require.NoError(t, err)
	a.root, a.shop = userClient(t, a.addr, "root", "change-me"), userClient(t, a.addr, "shop", "change-me")
	return a
}

// isStrict compares a version with those that docs/etcd.md names.
func isStrict(t *testing.T, version string) bool {
	t.Helper()
	var major, minor, patch int
	_, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	require.NoError(t, err)
	first, known := map[int]int{4: 44, 5: 30, 6: 11}[minor]
	return known && patch >= first || !known && minor > 6
}

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/etcd.md")
	require.NoError(t, err)
	return string(text)
}

// userLines are those of docs/etcd.md.
func userLines(t *testing.T) (lines []string) {
	t.Helper()
	for line := range strings.Lines(page(t)) {
		if rest, ok := strings.CutPrefix(line, "    etcdctl "); ok {
			lines = append(lines, strings.TrimSpace(rest))
		}
	}
	require.Len(t, lines, 4)
	return lines
}

// etcdctl carries out lines.
func etcdctl(t *testing.T, c *clientv3.Client, lines ...string) {
	t.Helper()
	for _, line := range lines {
		f := strings.Fields(line)
		var err error
		switch f[0] + " " + f[1] {
		case "user add":
			name, password, _ := strings.Cut(f[2], ":")
			_, err = c.UserAdd(t.Context(), name, password)
		case "role add":
			_, err = c.RoleAdd(t.Context(), f[2])
		case "user grant-role":
			_, err = c.UserGrantRole(t.Context(), f[2], f[3])
		case "role grant-permission":
			require.Equal(t, []string{"--prefix=true", "readwrite"}, []string{f[2], f[4]})
			_, err = c.RoleGrantPermission(t.Context(), f[3], f[5], clientv3.GetPrefixRangeEnd(f[5]), clientv3.PermissionType(clientv3.PermReadWrite))
		default:
			t.Fatal(line)
		}
		require.NoError(t, err, line)
	}
}

func (a *apart) bank(t *testing.T) *Backend {
	t.Helper()
	return open(t, "bank:change-me@"+a.addr, bankPrefix)
}

func (a *apart) victims(t *testing.T) testlocker.Victims {
	t.Helper()
	return testlocker.Victims{One: a.bank(t), Other: a.bank(t), Key: "bank:acct:9", Load: "bank:load"}
}

// attack is a request of shop's user, with what it could know of a lock of bank.
type attack func(ctx context.Context) error

// unchecked begins the name of an attack that a server that is not strict lets every user make.
const unchecked = "unchecked: "

// attacks are those on a key of bank and its session, by their names.
func (a *apart) attacks(key string, lease clientv3.LeaseID) map[string]attack {
	const below, own = bankPrefix + "/", shopPrefix + "/own"
	c, all := a.shop, clientv3.WithRange(clientv3.GetPrefixRangeEnd(below))
	txn := func(ctx context.Context, ops ...clientv3.Op) error { return second(c.Txn(ctx).Then(ops...).Commit()) }
	return map[string]attack{
		"get":          func(ctx context.Context) error { return second(c.Get(ctx, key)) },
		"get all":      func(ctx context.Context) error { return second(c.Get(ctx, below, all)) },
		"get each key": func(ctx context.Context) error { return second(c.Get(ctx, "\x00", clientv3.WithFromKey())) },
		"count":        func(ctx context.Context) error { return second(c.Get(ctx, below, all, clientv3.WithCountOnly())) },
		"put":          func(ctx context.Context) error { return second(c.Put(ctx, key, "ghost")) },
		"put a new":    func(ctx context.Context) error { return second(c.Put(ctx, below+"bank:acct:9/x/ghost", "ghost")) },
		"put prefix":   func(ctx context.Context) error { return second(c.Put(ctx, below, "ghost")) },
		"delete":       func(ctx context.Context) error { return second(c.Delete(ctx, key)) },
		"delete all":   func(ctx context.Context) error { return second(c.Delete(ctx, below, all)) },
		"delete from":  func(ctx context.Context) error { return second(c.Delete(ctx, shopPrefix, clientv3.WithFromKey())) },
		"txn":          func(ctx context.Context) error { return txn(ctx, clientv3.OpDelete(key)) },
		"txn of both": func(ctx context.Context) error {
			return txn(ctx, clientv3.OpPut(own, "1"), clientv3.OpPut(key, "ghost"))
		},
		"compare": func(ctx context.Context) error {
			return second(c.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", "")).Commit())
		},
		"use session":  func(ctx context.Context) error { return second(c.Put(ctx, own, "1", clientv3.WithLease(lease))) },
		"revoke":       func(ctx context.Context) error { return second(c.Revoke(ctx, lease)) },
		"its role":     func(ctx context.Context) error { return second(c.UserGrantRole(ctx, "shop", "bank")) },
		"more rights":  func(ctx context.Context) error { return second(c.RoleGrantPermission(ctx, "shop", below, "", 2)) },
		"its password": func(ctx context.Context) error { return second(c.UserChangePassword(ctx, "bank", "x")) },
		"delete user":  func(ctx context.Context) error { return second(c.UserDelete(ctx, "bank")) },
		"auth off":     func(ctx context.Context) error { return second(c.AuthDisable(ctx)) },
		"add a member": func(ctx context.Context) error { return second(c.MemberAdd(ctx, []string{"http://127.0.0.1:1"})) },
		"defragment":   func(ctx context.Context) error { return second(c.Defragment(ctx, a.addr)) },
		"take it along": func(ctx context.Context) error {
			r, err := c.Snapshot(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = r.Close() }()
			return second(r.Read(make([]byte, 1)))
		},
		"watch": func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			for w := range c.Watch(ctx, below, all) {
				if err := w.Err(); err != nil || w.Canceled {
					return fmt.Errorf("canceled: permission denied: %w", err)
				}
			}
			return ctx.Err()
		},

		unchecked + "list leases": func(ctx context.Context) error { return second(c.Leases(ctx)) },
		unchecked + "its keys": func(ctx context.Context) error {
			return second(c.TimeToLive(ctx, lease, clientv3.WithAttachedKeys()))
		},
		unchecked + "keep alive": func(ctx context.Context) error { return second(c.KeepAliveOnce(ctx, lease)) },
		unchecked + "compact": func(ctx context.Context) error {
			now, err := c.Put(ctx, own, "1")
			if err != nil {
				return err
			}
			return second(c.Compact(ctx, now.Header.Revision))
		},
		unchecked + "txn session": func(ctx context.Context) error {
			return txn(ctx, clientv3.OpPut(own, "1", clientv3.WithLease(lease)))
		},
		unchecked + "nested get": func(ctx context.Context) error {
			return txn(ctx, clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet(below, all)}, nil))
		},
	}
}

// try makes an attack, which is refused, unless the server does not check it. It reports whether that is so.
func (a *apart) try(t *testing.T, name string, of attack) (passed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := of(ctx)
	if strings.HasPrefix(name, unchecked) && !a.strict && err == nil {
		return true
	}
	require.Error(t, err, name)
	require.Contains(t, err.Error(), "permission denied", name)
	return false
}

// targets are the keys of bank, with their sessions.
func (a *apart) targets(t *testing.T) (all []map[string]attack) {
	t.Helper()
	found, err := a.root.Get(t.Context(), bankPrefix+"/bank:acct:9/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, found.Kvs, 2, "a holder and a waiter")
	for _, kv := range found.Kvs {
		all = append(all, a.attacks(string(kv.Key), clientv3.LeaseID(kv.Lease)))
	}
	return all
}

// TestAnotherSystemsUserHasNoRightToALock: the documented lines keep systems apart.
func TestAnotherSystemsUserHasNoRightToALock(t *testing.T) {
	t.Parallel()
	attackAll(t, 1)
}

// TestAnotherSystemsUserDisturbsNobody: the same, thousands of times.
func TestAnotherSystemsUserDisturbsNobody(t *testing.T) {
	testscope.Long(t, "a storm of requests")
	attackAll(t, testscope.Scale(80, 1600))
}

// attackAll sends all requests so many times.
func attackAll(t *testing.T, rounds int) {
	t.Helper()
	a := startApart(t)
	longest := a.victims(t).Undisturbed(t, func(distributed.Lease, distributed.Place) {
		targets := a.targets(t)
		for range rounds {
			for _, attacks := range targets {
				for name, of := range attacks { // in any order
					a.try(t, name, of)
				}
			}
		}
	})
	testscope.InTime(t, longest, longestSilence, "the longest wait: the lock was passed on by watches")
}

// TestServersThatSeparateNobody: older servers do not check all requests, as docs/etcd.md says, and later ones do.
func TestServersThatSeparateNobody(t *testing.T) {
	t.Parallel()
	a := startApart(t)
	held := asker(t, a.bank(t), "bank:acct:9").Lease("a", lasting(long))
	alarm := func(action pb.AlarmRequest_AlarmAction) attack {
		return func(ctx context.Context) error {
			return second(pb.NewMaintenanceClient(a.shop.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE}))
		}
	}
	stopped := a.try(t, unchecked+"stop all writes", alarm(pb.AlarmRequest_ACTIVATE))
	_, err := a.root.Put(t.Context(), "/k", "v")
	require.Equal(t, stopped, err != nil, "%v", err)
	a.try(t, unchecked+"go on", alarm(pb.AlarmRequest_DEACTIVATE))
	used := a.try(t, unchecked+"use session", a.attacks("", clientv3.LeaseID(claimOf(held).s.lease()))[unchecked+"txn session"])
	ended := a.try(t, unchecked+"nested delete", func(ctx context.Context) error {
		return second(a.shop.Txn(ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpDelete(bankPrefix+"/", clientv3.WithPrefix())}, nil)).Commit())
	})
	require.Equal(t, a.strict, !stopped && !used && !ended)
	if !ended {
		release(t, held)
	}
}

// TestASessionCannotBeGuessed: a user may attach a key to any etcd lease that has none, and take the numbers of those to come. A strict
// server then refuses all locks of the session.
func TestASessionCannotBeGuessed(t *testing.T) {
	t.Parallel()
	a := startApart(t)
	const near = 100
	b := a.bank(t)
	release(t, asker(t, b, "bank:acct:9").Lease("a")) // the session is idle
	mine, err := a.shop.Grant(t.Context(), 60)
	require.NoError(t, err)
	for id := mine.ID - near; id < mine.ID; id++ {
		_, err := a.shop.Put(t.Context(), shopPrefix+"/own", "1", clientv3.WithLease(id))
		require.ErrorContains(t, err, "requested lease not found")
	}
	release(t, asker(t, b, "bank:acct:9").Lease("a"))

	now, err := a.shop.Grant(t.Context(), 60)
	require.NoError(t, err)
	lease := pb.NewLeaseClient(a.shop.ActiveConnection())
	for id := now.ID + 1; id <= now.ID+3*near; id++ { // each takes a number itself
		_, err := lease.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{TTL: 60, ID: int64(id)})
		require.NoError(t, err)
	}
	l, _, err := a.bank(t).Enter(t.Context(), distributed.Request{Key: "bank:acct:9", Instance: "a", TTL: long})
	require.NoError(t, err)
	release(t, l)
}

func second(_ any, err error) error { return err }
