package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/dynamolock"
	"github.com/wllock/wllock/distributed/etcdlock"
	"github.com/wllock/wllock/distributed/kubelock"
	"github.com/wllock/wllock/distributed/memcachelock"
	"github.com/wllock/wllock/distributed/natslock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/distributed/s3lock"
	"github.com/wllock/wllock/distributed/sqllock"
	"github.com/wllock/wllock/distributed/zklock"
)

const (
	// trialName is the name of the locks that are tried: nobody else uses their keys.
	trialName = "wllock-doctor"
	// trials is how many locks are taken, one after the other.
	trials = 5
	// A lock that takes a tenth of T is slow: heartbeats and renewals, T/6 and T/3 apart, have little room for a lost message.
	slowShare = 10
)

// tryLock opens the backend as a service does, which checks its rights for this system, and takes some locks. reached: there is a
// server to be looked at.
func (p *patient) tryLock(ctx context.Context) (reached bool) {
	settings := p.settings
	settings.KeySecret, settings.KeySecretFile = config.Secret{}, "" // the keys are ours, so errors keep their whole text
	locker, err := settings.Open(ctx, wllock.WithOutage(wllock.FailClosed))
	if err != nil {
		p.fail(p.opening(err))
		return !isAway(err) && !isSilent(err)
	}
	p.takeLocks(ctx, locker)
	p.unused(ctx)
	return true
}

func (p *patient) takeLocks(ctx context.Context, locker *wllock.Locker) {
	defer func() { _ = locker.Close(context.WithoutCancel(ctx)) }()
	p.fine("access", "system %q: everything that locks need is allowed", p.settings.SystemName)
	p.formats()
	var took []time.Duration
	for range trials {
		began := time.Now()
		err := locker.Do(ctx, trialName, rand.Text(), func(context.Context) error { return nil }, wllock.SyncRelease(), wllock.WithWait(p.ttl))
		if err != nil {
			p.fail(Finding{Subject: "lock", What: fmt.Sprintf("a lock cannot be taken: %v", err), Means: "services get the same error"})
			return
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	middle := took[len(took)/2]
	p.judge(middle > p.ttl/slowShare, Warning, Finding{
		Subject: "lock", What: fmt.Sprintf("lock and unlock take %v, T is %v", middle.Round(10*time.Microsecond), p.ttl),
		Means: "a few lost messages, or a busy moment, lose leases",
		Mend:  fmt.Sprintf("WLLOCK_LEASE_TTL=%v in all services, or a server that is nearer", (2*slowShare*middle).Round(time.Second)+time.Second),
	})
}

// reaped is a backend that keeps what nobody uses any more, until it deletes it in the background.
type reaped interface {
	// Backlog returns how much should have been deleted and is still there, and since when; zero: nothing is.
	Backlog(ctx context.Context) (rows int64, since time.Time, err error)
}

// unused looks whether what nobody uses is deleted in time.
func (p *patient) unused(ctx context.Context) {
	backend, err := p.settings.OpenBackend(ctx)
	if err != nil {
		return // access says why
	}
	defer func() { _ = backend.Close() }()
	r, is := backend.(reaped)
	if !is {
		return
	}
	rows, since, err := r.Backlog(ctx)
	if err != nil {
		p.warn(Finding{Subject: "unused rows", What: err.Error(), Means: "whether the rows of unused locks are deleted is not known"})
		return
	}
	what := "are deleted in time"
	if !since.IsZero() {
		what = fmt.Sprintf("are not all deleted, since %s: %d", since.UTC().Format(time.DateTime+" MST"), rows)
	}
	p.judge(!since.IsZero(), Warning, Finding{
		Subject: "unused rows", What: what, Means: "the tables grow; locks still work",
		Mend: "look for 'unused rows were not deleted' in the services' logs, for sessions that keep rows locked, and for a process " +
			"that lives for hours; check ids that clients invent before the guard",
	})
}

// opening explains why a backend cannot be used.
func (p *patient) opening(err error) Finding {
	f := Finding{Subject: "access", What: err.Error(), Means: "no lock can be acquired: services fail at start with this error"}
	text := err.Error()
	switch {
	case strings.Contains(text, "unknown command"), strings.Contains(text, "Unknown Redis command"):
		f.Mend = "take the command's rename-command out of redis.conf, and restart the server"
	case strings.Contains(text, "lacks the ACL rule"):
		_, rules, _ := strings.Cut(text, "ACL rule")
		rules, _, _ = strings.Cut(strings.TrimLeft(rules, "s "), " (")
		rules, _, _ = strings.Cut(rules, ": ")
		f.Mend = fmt.Sprintf("redis-cli ACL SETUSER %s '%s'", p.user(), strings.Join(strings.Fields(rules), "' '"))
	case strings.Contains(text, "too old"):
		f.Mend = "upgrade the server to Redis 7.0 or later, or Valkey"
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"):
		f.Mend = "give user and password: WLLOCK_REDIS_USERNAME, WLLOCK_REDIS_PASSWORD_FILE"
	case strings.Contains(text, "certificate"), strings.Contains(text, "tls: "):
		f.Mend = "tls_ca, tls_cert, tls_key and tls_server_name in WLLOCK_BACKEND, or WLLOCK_TLS_CA and so on: docs/settings.md"
	case strings.Contains(text, "replicas have acknowledged"):
		f.Mend = "start more replicas, mend their connections, or set WLLOCK_REDIS_REPLICA_ACKS lower"
	case strings.Contains(text, "want a Role"):
		f.Mend = "kubectl apply the Role of docs/backends.md in that namespace, and a RoleBinding to that user"
	case strings.Contains(text, "lacks the right"):
		f.Mend = "add the right to the policy of the role or user that connects: docs/backends.md"
	case strings.Contains(text, "get credentials"):
		f.Mend = "give credentials in one of the places where the AWS SDK looks, such as AWS_PROFILE, or a role of the machine"
	case isAway(err):
		f.Mend = "start the server, or correct host and port of WLLOCK_BACKEND"
	case isSilent(err):
		f.Mend = "the server, or a firewall on the way, takes connections and does not answer: look for a stopped process, a full CPU or disk, a script that runs"
	case isMissingTable(err):
		f.Mend = "wllock migrate, as a user who may create tables"
	}
	return f
}

// isAway reports that no connection could be made.
func isAway(err error) bool {
	return errors.Is(err, distributed.ErrUnreached) || strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "no such host")
}

// isSilent reports that the server was not heard in time: nothing else that it is asked will be answered soon.
func isSilent(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// user is the one that connects.
func (p *patient) user() string {
	if _, has := p.url.User.Password(); has && p.url.User.Username() != "" {
		return p.url.User.Username()
	}
	return "default"
}

func isMissingTable(err error) bool {
	return strings.Contains(err.Error(), "sqllock.Migrate")
}

// formats notes in which format this version keeps locks.
func (p *patient) formats() {
	format := redislock.Format
	switch p.url.Scheme {
	case "postgres", "postgresql", "mysql", "sqlite":
		format = sqllock.Format
	case "zk", "zks":
		format = zklock.Format
	case "etcd", "etcds":
		format = etcdlock.Format
	case "nats", "natss":
		format = natslock.Format
	case "kubernetes":
		format = kubelock.Format
	case "memcached", "memcacheds":
		format = memcachelock.Format
	case "s3":
		format = s3lock.Format
	case "dynamodb":
		format = dynamolock.Format
	case "redlock", "redlocks":
		format = redlock.Format
	}
	p.fine("format", "this version keeps locks in format %d and refuses others", format)
}
