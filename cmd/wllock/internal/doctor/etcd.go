package doctor

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/wllock/wllock/internal/redisopts"
)

// etcdWait bounds the answer of one member.
const etcdWait = 3 * time.Second

// etcd asks each member for its state, and the cluster for alarms. With a certificate authority or certificate of one's own only access
// and locks are tried.
func etcd(ctx context.Context, p *patient) {
	if p.url.RawQuery != "" {
		p.warn(Finding{Subject: "members", What: "not looked at: the URL has options", Means: "version and alarms are not known", Mend: "etcdctl endpoint status; etcdctl alarm list"})
		return
	}
	password, _ := p.url.User.Password()
	servers := redisopts.WithPort(p.url.Host, "2379")
	c := clientv3.Config{
		Endpoints: servers, Username: p.url.User.Username(), Password: password, DialTimeout: etcdWait, Logger: zap.NewNop(), Context: ctx,
	}
	if p.url.Scheme == "etcds" {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	client, err := clientv3.New(c)
	if err != nil {
		p.fail(Finding{Subject: "members", What: err.Error()})
		return
	}
	defer func() { _ = client.Close() }()
	for _, addr := range servers {
		p.where = addr
		p.etcdMember(ctx, client, addr)
	}
	p.where = ""
	p.etcdAlarms(ctx, client)
}

func (p *patient) etcdMember(ctx context.Context, client *clientv3.Client, addr string) {
	ctx, cancel := context.WithTimeout(ctx, etcdWait)
	defer cancel()
	status, err := client.Status(ctx, addr)
	if err != nil {
		p.warn(Finding{Subject: "member", What: err.Error(), Means: "its clients move to others, as long as a majority serves", Mend: "start it, or take it out of WLLOCK_BACKEND"})
		return
	}
	p.judge(status.Leader == 0, Error, Finding{
		Subject: "member", What: fmt.Sprintf("etcd %s, leader known: %v, database %d MB", status.Version, status.Leader != 0, status.DbSize>>20),
		Means: "without a leader no lock can be acquired", Mend: "start the other members",
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
