package tlstest

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
)

const (
	// name is what certificates are for, of servers that listen on 127.0.0.1.
	name = "locks.test"
	// patience is how long a busy machine may take to say the right thing.
	patience = 30 * time.Second
	pause    = 10 * time.Millisecond
	// firstBudget is the time of the first try, and leaseTTL that of a lease: most refusals need not wait for its end.
	firstBudget = 300 * time.Millisecond
	leaseTTL    = 10 * time.Second
)

// Start starts a server that shows a certificate, and demands one of the authority from its clients if that is not "". show has the same
// server do so with others, and cut its connections. The URL is without parameters of TLS. Tests that run in parallel start theirs: see Alone.
type Start func(t *testing.T, server Pair, clients string) (url string, show func(server Pair, clients string))

// Before is the Start of a server that a Proxy speaks TLS for. Of the URL the proxy's address is known first.
func Before(target string, urlOf func(addr string) string) Start {
	return func(t *testing.T, server Pair, clients string) (string, func(Pair, string)) {
		p := NewProxy(t, target, server, clients)
		return urlOf(p.Addr), func(server Pair, clients string) { p.Show(t, server, clients) }
	}
}

// Alone has one test after the other use what start starts.
func Alone(start Start) Start {
	var one sync.Mutex
	return func(t *testing.T, server Pair, clients string) (string, func(Pair, string)) {
		one.Lock()
		t.Cleanup(one.Unlock)
		return start(t, server, clients)
	}
}

// Run tries what a backend says to servers with several certificates, by its URL alone: Ping, and an Enter.
func Run[B distributed.Backend](t *testing.T, start Start, open func(url string) (B, error)) {
	var closing sync.WaitGroup // of what cannot reach its server, which takes a while
	t.Cleanup(closing.Wait)
	opened := func(t *testing.T, base string, parameters url.Values) B {
		separator := "?"
		if strings.Contains(base, separator) {
			separator = "&"
		}
		b, err := open(base + separator + parameters.Encode())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closing.Go(func() { _ = b.Close() }) })
		return b
	}
	ours, others := NewAuthority(t), NewAuthority(t)
	server, client, stranger := ours.Issue(name), ours.Issue("client.test"), others.Issue("client.test")
	certificate := func(p Pair) url.Values { return url.Values{"tls_cert": {p.Cert}, "tls_key": {p.Key}} }
	for _, test := range []struct {
		what    string
		server  Pair
		clients string
		change  url.Values // of the parameters that are right
		says    string     // a pattern, "" if it is admitted
	}{
		{"right", server, "", nil, ""},
		{"right for the address", ours.Issue("127.0.0.1"), "", url.Values{"tls_server_name": nil}, ""},
		{"unknown authority", server, "", url.Values{"tls_ca": {others.File}}, "certificate signed by unknown authority"},
		{"expired", ours.Expired(name), "", nil, "certificate has expired"},
		{"wrong name", server, "", url.Values{"tls_server_name": {"other.test"}}, "certificate is valid for locks.test, not other.test"},
		{"no name for the address", server, "", url.Values{"tls_server_name": nil}, "cannot validate certificate for 127.0.0.1"},
		{"client certificate", server, ours.File, certificate(client), ""},
		{"no client certificate", server, ours.File, nil, "certificate required|Access denied"}, // the latter of MariaDB
		{"client certificate of a stranger", server, ours.File, certificate(stranger), "remote error: tls: (unknown certificate authority|bad certificate|unknown certificate)|bad connection|invalid connection"},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			base, _ := start(t, test.server, test.clients)
			b := opened(t, base, merged(url.Values{"tls_ca": {ours.File}, "tls_server_name": {name}}, test.change))
			try(t, test.says, b.Ping)
			try(t, test.says, func(ctx context.Context) error { return enter(ctx, b) })
		})
	}
	t.Run("rotated", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		ca, cert, key := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
		rotate := func(authority *Authority, client Pair) {
			Copy(t, authority.File, ca)
			Copy(t, client.Cert, cert)
			Copy(t, client.Key, key)
		}
		rotate(ours, client)
		base, show := start(t, server, ours.File)
		b := opened(t, base, url.Values{"tls_ca": {ca}, "tls_server_name": {name}, "tls_cert": {cert}, "tls_key": {key}})
		try(t, "", b.Ping)
		rotate(others, stranger)
		show(others.Issue(name), others.File)
		try(t, "", b.Ping)
		try(t, "", func(ctx context.Context) error { return enter(ctx, b) })
	})
}

// enter asks for a lock and releases it.
func enter(ctx context.Context, b distributed.Backend) error {
	req := distributed.Request{Key: "shop:tls:" + rand.Text(), Instance: "shop", TTL: leaseTTL, NoWait: true}
	lease, place, err := b.Enter(ctx, req)
	switch {
	case err != nil:
		return err
	case place != nil:
		return errors.Join(errors.New("a free lock has a queue"), place.Leave(ctx))
	}
	return lease.Release(ctx)
}

func merged(base, change url.Values) url.Values {
	for name, value := range change {
		if base[name] = value; value == nil {
			delete(base, name)
		}
	}
	return base
}

// try asks until the answer is the one that is wanted: on a busy machine time may run out first. What is to be refused is never admitted.
func try(t *testing.T, says string, ask func(context.Context) error) {
	t.Helper()
	for end, budget := time.Now().Add(patience), firstBudget; ; budget = min(2*budget, patience/4) {
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		err := ask(ctx)
		cancel()
		switch {
		case err == nil && says != "":
			t.Fatal("admitted")
		case err == nil, says != "" && regexp.MustCompile(says).MatchString(err.Error()):
			if err != nil {
				t.Log(err)
			}
			return
		case time.Now().After(end):
			t.Fatalf("%v does not say %q", err, says)
		}
		time.Sleep(pause)
	}
}
