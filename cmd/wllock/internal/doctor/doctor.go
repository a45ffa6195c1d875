// Package doctor looks at a lock service as an operator would who knows what locks need: what is wrong, what it means, what mends it.
//
//	Examine ─┬─▶ the library itself: does it open, does it have its rights, how long does a lock take
//	         └─▶ the server, by its own client: version, settings, replicas, clock
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/wllock/wllock/cmd/wllock/internal/show"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed"
)

// Level says how bad a finding is.
type Level int

const (
	// Fine is as it should be.
	Fine Level = iota
	// Warning is what makes locks weaker or slower under some fault.
	Warning
	// Error is what keeps locks from working, or from excluding.
	Error
)

// String returns one word.
func (l Level) String() string { return [...]string{"ok", "warning", "error"}[l] }

// MarshalText is String for encoders.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is one thing that was looked at.
type Finding struct {
	Level   Level  `json:"level"`
	Subject string `json:"subject"`
	What    string `json:"what"`
	Means   string `json:"means,omitempty"`
	Mend    string `json:"mend,omitempty"` // a command, or what to do
}

// patient is who is looked at.
type patient struct {
	settings config.Config
	url      *url.URL // with the credentials
	ttl      time.Duration
	where    string // the server that is looked at; "": there is only one
	findings []Finding
}

// add notes a finding, of the server that is looked at if there are several.
func (p *patient) add(level Level, f Finding) {
	if f.Level = level; level == Fine {
		f.Means, f.Mend = "", ""
	}
	if p.where != "" {
		f.What = p.where + ": " + f.What
	}
	p.findings = append(p.findings, f)
}

func (p *patient) fine(subject, format string, args ...any) {
	p.add(Fine, Finding{Subject: subject, What: fmt.Sprintf(format, args...)})
}

func (p *patient) warn(f Finding) { p.add(Warning, f) }
func (p *patient) fail(f Finding) { p.add(Error, f) }

// judge notes a finding that is fine unless it is bad.
func (p *patient) judge(bad bool, as Level, f Finding) {
	if !bad {
		as = Fine
	}
	p.add(as, f)
}

// Examine looks at the backend of these settings.
func Examine(ctx context.Context, settings config.Config) ([]Finding, error) {
	u, err := FullURL(ctx, settings)
	if err != nil {
		return nil, err
	}
	p := &patient{settings: settings, url: u, ttl: settings.LeaseTTL}
	if u.Scheme == "sqlite" {
		p.file(ctx)
	} else if p.tryLock(ctx) {
		serverOf(u.Scheme)(ctx, p)
	}
	for i := range p.findings {
		p.findings[i].What = withoutSecrets(p.findings[i].What, u)
	}
	return p.findings, nil
}

// Worst is the level of the worst finding.
func Worst(all []Finding) Level {
	if len(all) == 0 {
		return Fine
	}
	return slices.MaxFunc(all, func(a, b Finding) int { return cmp.Compare(a.Level, b.Level) }).Level
}

// Write writes the findings for people.
func Write(w io.Writer, all []Finding) {
	for _, f := range all {
		fmt.Fprintf(w, "%-8s %-12s %s\n", f.Level, f.Subject, show.Lines(f.What))
		if f.Means != "" {
			fmt.Fprintf(w, "%21s means: %s\n", "", show.Lines(f.Means))
		}
		if f.Mend != "" {
			fmt.Fprintf(w, "%21s mend:  %s\n", "", show.Lines(f.Mend))
		}
	}
}

// errSeen ends the opening when the URL has been seen.
var errSeen = errors.New("seen")

// FullURL returns the URL with what other settings say of user, password and TLS, which only openers get.
func FullURL(ctx context.Context, settings config.Config) (seen *url.URL, err error) {
	u, err := settings.Backend.Parse()
	if err != nil {
		return nil, err
	}
	_, err = settings.WithOpener(u.Scheme, func(_ context.Context, full *url.URL) (distributed.Backend, error) {
		seen = full
		return nil, errSeen
	}).OpenBackend(ctx)
	if seen == nil {
		return nil, err
	}
	return seen, nil
}

// withoutSecrets takes the password out of what a client's error says.
func withoutSecrets(text string, u *url.URL) string {
	if password, has := u.User.Password(); has && password != "" {
		text = strings.ReplaceAll(text, password, "xxxxx")
	}
	return text
}

// serverOf returns what looks at servers of a kind.
func serverOf(scheme string) func(context.Context, *patient) {
	switch scheme {
	case "postgres", "postgresql":
		return postgresServer
	case "mysql":
		return mysqlServer
	case "zk", "zks":
		return zookeeper
	case "etcd", "etcds":
		return etcd
	case "nats", "natss":
		return natsServers
	case "memcached", "memcacheds":
		return memcached
	case "kubernetes":
		return kubernetes
	case "s3":
		return bucket
	case "dynamodb":
		return dynamoTable
	}
	return redisServers
}
