package doctor

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/wllock/wllock/internal/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A database that nobody compacts, and that has nearly used its quota up, are named; after a compaction the former is fine.
func TestAnEtcdThatGrows(t *testing.T) {
	s := etcdtest.Start(t, "--quota-backend-bytes=4000000", "--backend-batch-limit=1") // each change is counted at once
	u, err := url.Parse("etcd://" + s.Addr)
	require.NoError(t, err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	found := func() map[string]Finding {
		p := &patient{url: u}
		p.etcdMember(t.Context(), client, s.Addr, nil)
		p.etcdHistory(t.Context(), client, 2)
		all := map[string]Finding{}
		for _, f := range p.findings {
			all[f.Subject] = f
		}
		return all
	}
	last := int64(0)
	for i := 0; found()["quota"].Level != Warning; i++ {
		put, err := client.Put(t.Context(), fmt.Sprint("/big/", i), strings.Repeat("x", 100_000))
		require.NoError(t, err)
		last = put.Header.Revision
	}
	require.Equal(t, Warning, found()["compaction"].Level)
	_, err = client.Compact(t.Context(), last)
	require.NoError(t, err)
	after := found()
	require.Contains(t, after, "compaction")
	require.Equal(t, Fine, after["compaction"].Level)
}

// A learner serves no locks: it is named.
func TestALearnerIsNamed(t *testing.T) {
	s := etcdtest.Start(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	before, err := client.MemberList(t.Context())
	require.NoError(t, err)
	learner := etcdtest.StartLearner(t, func(peer string) (string, error) {
		_, err := client.MemberAddAsLearner(t.Context(), []string{peer})
		return before.Members[0].PeerURLs[0], err
	})
	p := new(patient)
	for _, addr := range []string{s.Addr, learner.Addr} {
		p.where = addr
		p.etcdMember(t.Context(), client, addr, nil)
	}
	named := slices.DeleteFunc(p.findings, func(f Finding) bool { return f.Subject != "learner" })
	require.Len(t, named, 1)
	require.Equal(t, Warning, named[0].Level)
	require.Contains(t, named[0].What, learner.Addr)
}

// A member that has carried out far fewer changes than another is named.
func TestAMemberThatIsBehindIsNamed(t *testing.T) {
	p := new(patient)
	p.etcdBehind(map[string]uint64{"a:1": 7000, "b:1": 6500, "c:1": 5000})
	require.Len(t, p.findings, 1)
	require.Equal(t, Warning, p.findings[0].Level)
	require.Contains(t, p.findings[0].What, "c:1")
	require.Contains(t, p.findings[0].What, "2000 changes behind")
	p.findings = nil
	p.etcdBehind(nil)
	require.Empty(t, p.findings)
}
