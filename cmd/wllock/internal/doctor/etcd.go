package doctor

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/passfile"
	"github.com/wllock/wllock/internal/tlsfile"
)

// etcdWait bounds the answer of one member.
const etcdWait = 3 * time.Second

// etcd asks each member for its state, and the cluster for alarms.
func etcd(ctx context.Context, p *patient) {
	servers := openurl.WithPorts(p.url.Host, "2379")
	c := clientv3.Config{Endpoints: servers, DialTimeout: etcdWait, Logger: zap.NewNop(), Context: ctx}
	if err := p.etcdAccess(&c); err != nil {
		p.fail(Finding{Subject: "URL", What: err.Error()})
		return
	}
	client, err := clientv3.New(c)
	if err != nil {
		p.fail(Finding{Subject: "members", What: err.Error()})
		return
	}
	defer func() { _ = client.Close() }()
	done := map[string]uint64{}
	for _, addr := range servers {
		p.where = addr
		if status := p.etcdMember(ctx, client, addr, c.TLS); status != nil {
			done[addr] = status.RaftAppliedIndex
		}
	}
	p.etcdBehind(done)
	p.where = ""
	p.etcdAlarms(ctx, client)
	p.etcdHistory(ctx, client, keptRevisions)
}

// etcdAccess adds what the URL says of user, password and TLS, and etcdlock has taken.
func (p *patient) etcdAccess(c *clientv3.Config) error {
	u := *p.url
	u.RawQuery = tlsfile.Renamed(u.RawQuery)
	files, passwordFile, err := openurl.Access(&u, "etcds")
	if err != nil {
		return err
	}
	c.Username = u.User.Username()
	c.Password, _ = u.User.Password()
	if passwordFile != "" {
		c.Password, err = passfile.Read(passwordFile)
	}
	if u.Scheme == "etcds" && err == nil {
		c.TLS, err = files.Config("")
	}
	if files.ServerName != "" { // the library takes the name from the authority alone
		c.DialOptions = []grpc.DialOption{grpc.WithAuthority(files.ServerName)}
	}
	return err
}

// farBehind is how many changes a member may not have carried out yet before it refuses requests.
const farBehind = 5000

// etcdBehind names the members that have carried out far fewer changes than another one.
func (p *patient) etcdBehind(done map[string]uint64) {
	most := slices.Max(append(slices.Collect(maps.Values(done)), 0))
	for addr, n := range done {
		if n+farBehind/5 < most {
			p.where = addr
			p.warn(Finding{Subject: "behind", What: fmt.Sprintf("%d changes behind another member", most-n),
				Means: fmt.Sprintf("from %d on it refuses requests, which go on to another member", farBehind), Mend: "look at its disk, its CPU and its network"})
		}
	}
}

// etcdMember returns nil if the member does not answer.
func (p *patient) etcdMember(ctx context.Context, client *clientv3.Client, addr string, secure *tls.Config) *clientv3.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, etcdWait)
	defer cancel()
	status, err := client.Status(ctx, addr)
	if err != nil {
		p.warn(Finding{Subject: "member", What: err.Error(), Means: "its clients move to others, as long as a majority serves", Mend: "start it, or take it out of WLLOCK_BACKEND"})
		return nil
	}
	if status.IsLearner {
		p.warn(Finding{Subject: "learner", What: "it has no vote yet", Means: "it serves no locks: each request that reaches it goes on to another member", Mend: "promote it, or take it out of WLLOCK_BACKEND"})
	}
	p.judge(status.Leader == 0, Error, Finding{
		Subject: "member", What: fmt.Sprintf("etcd %s, leader known: %v, database %d MB", status.Version, status.Leader != 0, status.DbSize>>20),
		Means: "without a leader no lock can be acquired", Mend: "start the other members",
	})
	if quota := cmp.Or(status.DbSizeQuota, etcdQuota(ctx, addr, secure)); quota > 0 {
		p.judge(status.DbSize > quota/4*3, Warning, Finding{
			Subject: "quota", What: fmt.Sprintf("%d of %d MB", status.DbSize>>20, quota>>20),
			Means: "at the quota the cluster refuses all writes: no lock can be acquired",
			Mend:  "etcdctl compact REVISION, etcdctl defrag; --auto-compaction-retention=1h",
		})
	}
	return status
}

// etcdQuota reads the quota of a member's database from its metrics, as its status has none before etcd 3.6; 0: they do not tell.
func etcdQuota(ctx context.Context, addr string, secure *tls.Config) int64 {
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+addr+"/metrics", nil)
	if err != nil {
		return 0
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: secure}}
	got, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = got.Body.Close() }()
	for lines := bufio.NewScanner(got.Body); lines.Scan(); {
		if text, is := strings.CutPrefix(lines.Text(), "etcd_server_quota_backend_bytes "); is {
			quota, _ := strconv.ParseFloat(text, 64)
			return int64(quota)
		}
	}
	return 0
}

// keptRevisions is how many changes etcd may keep: with some 200 bytes for each a tenth of the default quota.
const keptRevisions = 1_000_000

// etcdHistory finds out whether old revisions are compacted, by reading one: a member does not tell its setting.
func (p *patient) etcdHistory(ctx context.Context, client *clientv3.Client, kept int64) {
	ctx, cancel := context.WithTimeout(ctx, etcdWait)
	defer cancel()
	key := cmp.Or(strings.TrimRight(p.url.Path, "/"), "/wllock") + "/"
	now, err := client.Get(ctx, key, clientv3.WithCountOnly())
	if err != nil {
		return // access says why
	}
	revision, grows := now.Header.Revision, false
	if revision > kept {
		_, err = client.Get(ctx, key, clientv3.WithCountOnly(), clientv3.WithRev(revision-kept))
		grows = err == nil
	}
	p.judge(grows, Warning, Finding{
		Subject: "compaction", What: fmt.Sprintf("revision %d, more than %d of history kept: %v", revision, kept, grows),
		Means: "each lock adds some 200 bytes, until the quota is used up and the cluster refuses all writes",
		Mend:  "--auto-compaction-mode=periodic --auto-compaction-retention=1h",
	})
}

func (p *patient) etcdAlarms(ctx context.Context, client *clientv3.Client) {
	ctx, cancel := context.WithTimeout(ctx, etcdWait)
	defer cancel()
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		return // access says why, or the user may not ask
	}
	for _, a := range alarms.Alarms {
		p.fail(Finding{
			Subject: "alarm", What: a.Alarm.String(), Means: "the cluster refuses writes: no lock can be acquired",
			Mend: "etcdctl compact REVISION, etcdctl defrag, etcdctl alarm disarm",
		})
	}
	if len(alarms.Alarms) == 0 {
		p.fine("alarms", "none")
	}
	if members, err := client.MemberList(ctx); err == nil {
		n := len(members.Members)
		p.judge(n == 1, Warning, Finding{
			Subject: "members", What: fmt.Sprintf("%d", n), Means: "while it is away no lock can be acquired, and with its disk all locks are lost", Mend: "three members, or five",
		})
	}
}
