package config

import (
	"fmt"
	"reflect"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/identity"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/redisopts"
	"github.com/wllock/wllock/internal/tlsfile"
)

// setting describes one variable, except its type and default, which are at its field of Config.
type setting struct {
	field    string
	variable string
	means    string
	allowed  string
	example  string
	private  bool // not shown
	// check returns what is wrong with it, or conflicts with a field before it, without secrets; "": nothing
	check func(Config) string
}

// settings has one entry for each field of Config, in the same order.
var settings = []setting{
	{
		field: "SystemName", variable: "WLLOCK_SYSTEM_NAME", example: "order",
		means:   "first part of every lock's name; required",
		allowed: nametext.Rule,
		check:   Config.systemFault,
	}, {
		field: "Backend", variable: backendVariable, example: "redis://redis:6379/0",
		means:   "where the locks are kept; memory:// is for this Locker alone; required",
		allowed: backendAllowed,
		check:   func(c Config) string { return c.Backend.fault() },
	}, {
		field: "SingleWaitThreshold", variable: "WLLOCK_SINGLE_WAIT_THRESHOLD", example: "500,product=200,cart=unlimited",
		means:   "callers that may wait per key in one process",
		allowed: "a number from 0, or unlimited; the same for single names as name=number",
		check:   func(c Config) string { return c.SingleWaitThreshold.fault() },
	}, {
		field: "FleetThreshold", variable: "WLLOCK_FLEET_THRESHOLD", example: "100",
		means:   "processes that may wait per key, over Redis, an SQL database or in memory; 0: any number",
		allowed: "a whole number, not negative",
		check:   func(c Config) string { return atLeast(c.FleetThreshold, 0) },
	}, {
		field: "LockTimeMax", variable: "WLLOCK_LOCK_TIME_MAX", example: "10s",
		means:   "longest a function may hold a lock; 0s: no limit",
		allowed: "a duration, not negative",
		check:   func(c Config) string { return atLeast(c.LockTimeMax, 0) },
	}, {
		field: "LeaseTTL", variable: "WLLOCK_LEASE_TTL", example: "5s",
		means:   "time until the lock of a crashed process is free",
		allowed: "a duration, " + distributed.MinTTL.String() + " or more",
		check:   func(c Config) string { return atLeast(c.LeaseTTL, distributed.MinTTL) },
	}, {
		field: "MaxHandoffs", variable: "WLLOCK_MAX_HANDOFFS", example: "128",
		means:   "callers served in a row while other processes wait; 0: every caller asks the backend",
		allowed: "a whole number, not negative",
		check:   func(c Config) string { return atLeast(c.MaxHandoffs, 0) },
	}, {
		field: "MaxTenure", variable: "WLLOCK_MAX_TENURE", example: "100ms",
		means:   "the same budget in time",
		allowed: "a duration above 0s",
		check:   func(c Config) string { return atLeast(c.MaxTenure, 1) },
	}, {
		field: "Linger", variable: "WLLOCK_LINGER", example: "20ms",
		means:   "how long an idle, unwanted lock is kept for the next caller; 0s: not at all; 200us: only of a key in steady use, over Redis or in memory",
		allowed: "a duration, not negative",
		check:   func(c Config) string { return atLeast(c.Linger, 0) },
	}, {
		field: "Wait", variable: "WLLOCK_WAIT", example: "2s",
		means:   "how long a caller waits for a lock; 0s: until its context ends",
		allowed: "a duration, not negative",
		check:   func(c Config) string { return atLeast(c.Wait, 0) },
	}, {
		field: "Outage", variable: "WLLOCK_OUTAGE", example: "closed",
		means:   "while the backend is unreachable: closed refuses, local locks within the process only",
		allowed: "closed or local",
		check:   func(c Config) string { return c.Outage.fault() },
	}, {
		field: "LongestTTL", variable: "WLLOCK_LONGEST_TTL", example: "10s",
		means:   "for local: the longest WLLOCK_LEASE_TTL of all processes; 0s: as they have told the backend",
		allowed: "a duration, not negative",
		check:   func(c Config) string { return atLeast(c.LongestTTL, 0) },
	}, {
		field: "Instance", variable: "WLLOCK_INSTANCE", example: "web-1",
		means:   "name that this process has for the backend, in logs and in errors; nothing: the host's, or the pod's",
		allowed: "nothing, or 1 to 63 letters, digits, dots, dashes and underscores",
		check:   func(c Config) string { return instanceFault(c.Instance) },
	}, {
		field: "KeySecret", variable: "WLLOCK_KEY_SECRET", example: "...at least 16 bytes...",
		means:   "secret under which keys are hashed in errors, logs, spans and the debug page; nothing: they are shown; a file is better",
		allowed: "nothing, or a line of 16 bytes or more",
		check:   Config.keySecretFault,
	}, {
		field: "KeySecretFile", variable: "WLLOCK_KEY_SECRET_FILE", example: "/run/secrets/keys", private: true,
		means:   "file that contains the secret",
		allowed: "nothing, or a readable file of 16 bytes or more if WLLOCK_KEY_SECRET is not set",
		check:   Config.keySecretFileFault,
	}, {
		field: "TLSCa", variable: "WLLOCK_TLS_CA", example: "/etc/wllock/ca.pem",
		means:   "PEM file of the authorities that vouch for the backend, if the URL has no tls_ca; nothing: the system's",
		allowed: tlsAllowed + "a readable file",
		check:   func(c Config) string { return c.tlsFault(c.TLSCa, tlsfile.Files{CA: c.TLSCa}) },
	}, {
		field: "TLSCert", variable: "WLLOCK_TLS_CERT", example: "/etc/wllock/client.pem",
		means:   "PEM file of a client certificate, if the URL has no tls_cert",
		allowed: tlsAllowed + "a readable file",
		check:   func(c Config) string { return c.tlsFault(c.TLSCert, tlsfile.Files{}) },
	}, {
		field: "TLSKey", variable: "WLLOCK_TLS_KEY", example: "/etc/wllock/client.key",
		means:   "PEM file of its key, if the URL has no tls_key",
		allowed: tlsAllowed + "a readable file that fits the certificate",
		check:   func(c Config) string { return c.tlsFault(c.TLSKey, c.tlsPair()) },
	}, {
		field: "TLSServerName", variable: "WLLOCK_TLS_SERVER_NAME", example: "locks.internal",
		means:   "what the backend's certificate must name, if the URL has no tls_server_name; nothing: the host",
		allowed: tlsAllowed + "a name",
		check:   func(c Config) string { return c.tlsFault(c.TLSServerName, tlsfile.Files{}) },
	}, {
		field: "RedisUsername", variable: "WLLOCK_REDIS_USERNAME", example: "wllock", private: true,
		means:   "user name, if the URL has none",
		allowed: "nothing, or a name if WLLOCK_BACKEND is Redis without a user name",
		check:   Config.usernameFault,
	}, {
		field: "RedisPassword", variable: "WLLOCK_REDIS_PASSWORD", example: "...",
		means:   "password, if the URL has none; a file is better, because processes inherit variables",
		allowed: "nothing, or a password if WLLOCK_BACKEND is Redis without one",
		check:   Config.passwordFault,
	}, {
		field: "RedisPasswordFile", variable: "WLLOCK_REDIS_PASSWORD_FILE", example: "/run/secrets/redis", private: true,
		means:   "file that contains the password",
		allowed: "nothing, or a readable file if no other setting has a password",
		check:   Config.passwordFileFault,
	}, {
		field: "RedisKey", variable: "WLLOCK_REDIS_KEY", example: "{name}:{key}",
		means:   "Redis key of a lock, to share it with clients that are not wllock",
		allowed: "a text with {key} in it, and maybe {system} and {name}; another than {system}:{name}:{key} if WLLOCK_BACKEND is Redis, not Redlock",
		check:   Config.redisKeyFault,
	}, {
		field: "RedisInteropGap", variable: "WLLOCK_REDIS_INTEROP_GAP", example: "25ms",
		means:   "how long a released lock is left free for clients that are not wllock and poll; 0s: not at all",
		allowed: "a duration, not negative; above 0s if WLLOCK_BACKEND is Redis, not Redlock",
		check:   Config.interopGapFault,
	}, {
		field: "RedisReplicaAcks", variable: "WLLOCK_REDIS_REPLICA_ACKS", example: "1",
		means:   "replicas that acknowledge a new lease before its caller gets it; 0: none",
		allowed: "a whole number, not negative; above 0 if WLLOCK_BACKEND is Redis, not Redlock",
		check:   Config.replicaAcksFault,
	}, {
		field: "RedisAcksWithin", variable: "WLLOCK_REDIS_ACKS_WITHIN", example: "500ms",
		means:   "how long they may take",
		allowed: "a duration, 1ms or more, at most half of WLLOCK_LEASE_TTL",
		check:   Config.acksWithinFault,
	},
}

func (s setting) problem(fault string) Problem {
	return Problem{Variable: s.variable, Fault: fault, Allowed: s.allowed, Example: s.variable + "=" + s.example}
}

// show renders the value of the setting in c, without secrets.
func (s setting) show(c Config) string {
	text := fmt.Sprint(reflect.ValueOf(c).FieldByName(s.field).Interface())
	if s.private && text != "" {
		return hidden
	}
	return text
}

// systemFault also refuses what is no system on Redis: its locks would be among the helper keys of others.
func (c Config) systemFault() string {
	if wrong := named(c.SystemName); wrong != "" || c.SystemName+":" != helperKeys {
		return wrong
	}
	if u, err := c.Backend.Parse(); err == nil {
		if _, redis := redisopts.SchemeOf(u.Scheme); redis {
			return nametext.Quote(c.SystemName) + " is no system on Redis: helper keys begin with " + helperKeys
		}
	}
	return ""
}

// named checks one of the first two parts of a lock's name as wllock.New and every call do.
func named(name string) string {
	switch {
	case name == "":
		return "is required"
	case nametext.CheckName("", name) != nil:
		return nametext.Quote(name) + " is not a name"
	}
	return ""
}

func instanceFault(name string) string {
	if name != "" && identity.Check(name) != nil {
		return nametext.Quote(name) + " is not a name for a process"
	}
	return ""
}

func atLeast[T int | time.Duration](value, least T) string {
	if value < least {
		return fmt.Sprintf("%v is less than %v", value, least)
	}
	return ""
}
