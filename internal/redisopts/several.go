package redisopts

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock/internal/openurl"
	"github.com/wllock/wllock/internal/tlsfile"
)

// ParseSentinel returns what a URL of sentinels says: user and password are those of the servers, and sentinel_username and
// sentinel_password those of the sentinels. The other parameters are those of redis.ParseFailoverURL. Its errors show no credentials.
func ParseSentinel(u *url.URL, overTLS bool) (*redis.FailoverOptions, error) {
	path := strings.Split(strings.Trim(u.Path, "/"), "/")
	if path[0] == "" || len(path) > 2 {
		return nil, errors.New("the URL must name the primary: redis+sentinel://host/primary")
	}
	rest := *u
	files, err := TakeTLS(&rest)
	if err != nil {
		return nil, err
	}
	q := rest.Query()
	username, password := take(q, "sentinel_username"), take(q, "sentinel_password")
	text, err := severalHosts(u, q, overTLS, "26379")
	if err != nil {
		return nil, err
	}
	o, err := redis.ParseFailoverURL(text)
	if err != nil {
		return nil, withoutURL(err)
	}
	o.MasterName, o.SentinelUsername, o.SentinelPassword = path[0], username, PasswordOf(username, password)
	o.Username, o.Password = credentials(u)
	o.TLSConfig = anyHost(o.TLSConfig)
	if len(path) == 2 {
		if o.DB, err = database(path[1]); err != nil {
			return nil, err
		}
	}
	o.Dialer, err = DialerOf(files, o.TLSConfig)
	return o, err
}

// ParseCluster returns what a URL of a cluster says. The parameters are those of redis.ParseClusterURL. Its errors show no
// credentials.
func ParseCluster(u *url.URL, overTLS bool) (*redis.ClusterOptions, error) {
	if strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("a cluster has no databases: the URL must end after the hosts")
	}
	rest := *u
	files, err := TakeTLS(&rest)
	if err != nil {
		return nil, err
	}
	q := rest.Query()
	skip := overTLS && q.Has("skip_verify")
	skipVerify := take(q, "skip_verify")
	text, err := severalHosts(u, q, overTLS, "6379")
	if err != nil {
		return nil, err
	}
	o, err := redis.ParseClusterURL(text)
	if err != nil {
		return nil, withoutURL(err)
	}
	o.Username, o.Password = credentials(u)
	if o.TLSConfig = anyHost(o.TLSConfig); skip {
		if o.TLSConfig.InsecureSkipVerify, err = strconv.ParseBool(skipVerify); err != nil {
			return nil, fmt.Errorf("skip_verify is %q: want true or false", skipVerify)
		}
	}
	o.Dialer, err = DialerOf(files, o.TLSConfig)
	return o, err
}

// ParseRedlock returns the options of the servers that a URL of Redlock names. TakeTLS has taken the files.
func ParseRedlock(u *url.URL, overTLS bool, files tlsfile.Files) ([]*redis.Options, error) {
	shared := redis.Options{}
	shared.Username, shared.Password = credentials(u)
	if overTLS {
		shared.TLSConfig, shared.Dialer = &tls.Config{MinVersion: tls.VersionTLS12}, files.Dial
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		var err error
		if shared.DB, err = database(path); err != nil {
			return nil, err
		}
	}
	var all []*redis.Options
	for _, addr := range openurl.WithPorts(u.Host, "6379") {
		o := shared
		o.Addr = addr
		all = append(all, &o)
	}
	return all, nil
}

// misplaced are parameters of go-redis that a URL with several hosts says elsewhere, or that lead away from the primary.
var misplaced = map[string]string{
	"addr": "the hosts stand before the path", "master_name": "the path names the primary", "db": "the database stands in the path",
	"username": "user and password stand before the hosts", "password": "user and password stand before the hosts",
	"read_only": toPrimary, "replica_only": toPrimary, "use_disconnected_replicas": toPrimary,
	"route_by_latency": toPrimary, "route_by_latency_tolerance": toPrimary, "route_randomly": toPrimary,
}

const toPrimary = "locks need the primary"

// severalHosts returns the URL, without credentials and path, in the form that go-redis reads: one host, and the others as
// parameters.
func severalHosts(u *url.URL, q url.Values, overTLS bool, port string) (string, error) {
	for name := range q {
		if why, ok := misplaced[name]; ok {
			return "", fmt.Errorf("the parameter %s has no use here: %s", name, why)
		}
	}
	hosts := openurl.WithPorts(u.Host, port)
	q["addr"] = hosts[1:]
	plain := url.URL{Scheme: "redis", Host: hosts[0], RawQuery: q.Encode()}
	if overTLS {
		plain.Scheme = "rediss"
	}
	return plain.String(), nil
}

// take removes a parameter and returns its value.
func take(q url.Values, name string) string {
	value := q.Get(name)
	q.Del(name)
	return value
}

func credentials(u *url.URL) (username, password string) {
	password, _ = u.User.Password()
	return u.User.Username(), PasswordOf(u.User.Username(), password)
}

// database reads the number of a database.
func database(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("invalid database number %q: want 0 or more", text)
	}
	return int(n), nil
}

// anyHost is c for several hosts: each is verified by its own name.
func anyHost(c *tls.Config) *tls.Config {
	if c != nil {
		c.ServerName, c.MinVersion = "", tls.VersionTLS12
	}
	return c
}

// withoutURL takes the text of the URL, which may hold a password, out of a parse error.
func withoutURL(err error) error {
	if errors.As(err, new(*url.Error)) {
		return errors.New("the URL cannot be parsed")
	}
	return err
}
