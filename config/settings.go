package config

import (
	"fmt"
	"reflect"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/nametext"
)

// setting is all there is to know about one variable, but for its type and default: those stand at its field of Config.
type setting struct {
	field    string
	variable string
	means    string
	allowed  string
	example  string
	private  bool // not shown
	// check says what is wrong with it, or does not go with a field before it, without secrets; "": nothing
	check func(Config) string
}

// settings has one entry for each field of Config, in the same order.
var settings = []setting{
	{
		field: "SystemName", variable: "WLLOCK_SYSTEM_NAME", example: "order",
		means:   "first part of every lock's name; required",
		allowed: nametext.Rule,
		check:   func(c Config) string { return named(c.SystemName) },
	}, {
		field: "Backend", variable: "WLLOCK_BACKEND", example: "redis://redis:6379/0",
		means:   "where the locks are kept; memory:// is this one Locker alone",
		allowed: "scheme://[user:password@]host[:port][/path][?options], user and password percent-encoded",
		check:   func(c Config) string { return c.Backend.fault() },
	}, {
		field: "SingleWaitThreshold", variable: "WLLOCK_SINGLE_WAIT_THRESHOLD", example: "500,product=200,cart=unlimited",
		means:   "callers that may wait for one key in one process",
		allowed: "a number from 0 or unlimited, and the same for single names as name=number",
		check:   func(c Config) string { return c.SingleWaitThreshold.fault() },
	}, {
		field: "LockTimeMax", variable: "WLLOCK_LOCK_TIME_MAX", example: "10s",
		means:   "longest a function may hold a lock; 0s: no limit",
		allowed: "a length of time, not negative",
		check:   func(c Config) string { return atLeast(c.LockTimeMax, 0) },
	}, {
		field: "LeaseTTL", variable: "WLLOCK_LEASE_TTL", example: "5s",
		means:   "after this time a crashed process's lock is free",
		allowed: "a length of time, " + distributed.MinTTL.String() + " or more",
		check:   func(c Config) string { return atLeast(c.LeaseTTL, distributed.MinTTL) },
	}, {
		field: "MaxHandoffs", variable: "WLLOCK_MAX_HANDOFFS", example: "128",
		means:   "callers served in a row while other processes wait; 0: each asks the backend",
		allowed: "a whole number, not negative",
		check:   func(c Config) string { return atLeast(c.MaxHandoffs, 0) },
	}, {
		field: "MaxTenure", variable: "WLLOCK_MAX_TENURE", example: "100ms",
		means:   "the same budget in time",
		allowed: "a length of time above 0s",
		check:   func(c Config) string { return atLeast(c.MaxTenure, 1) },
	}, {
		field: "Linger", variable: "WLLOCK_LINGER", example: "20ms",
		means:   "how long an idle lock that nobody wants is kept for the next caller; 0s: not at all",
		allowed: "a length of time, not negative",
		check:   func(c Config) string { return atLeast(c.Linger, 0) },
	}, {
		field: "Wait", variable: "WLLOCK_WAIT", example: "2s",
		means:   "how long a caller waits for a lock; 0s: until its context ends",
		allowed: "a length of time, not negative",
		check:   func(c Config) string { return atLeast(c.Wait, 0) },
	}, {
		field: "Outage", variable: "WLLOCK_OUTAGE", example: "closed",
		means:   "while the backend is away: closed refuses, local locks within the process only",
		allowed: "closed or local",
		check:   func(c Config) string { return c.Outage.fault() },
	}, {
		field: "RedisUsername", variable: "WLLOCK_REDIS_USERNAME", example: "wllock", private: true,
		means:   "user name, when the URL has none",
		allowed: "nothing, or a name when WLLOCK_BACKEND is Redis and has no user in it",
		check:   Config.usernameFault,
	}, {
		field: "RedisPassword", variable: "WLLOCK_REDIS_PASSWORD", example: "...",
		means:   "password, when the URL has none; a file is better, for processes inherit variables",
		allowed: "nothing, or a password when WLLOCK_BACKEND is Redis and has none in it",
		check:   Config.passwordFault,
	}, {
		field: "RedisPasswordFile", variable: "WLLOCK_REDIS_PASSWORD_FILE", example: "/run/secrets/redis", private: true,
		means:   "a file that holds the password",
		allowed: "nothing, or a readable file when no other setting gives a password",
		check:   Config.passwordFileFault,
	},
}

func (s setting) problem(fault string) Problem {
	return Problem{Variable: s.variable, Fault: fault, Allowed: s.allowed, Example: s.variable + "=" + s.example}
}

// show renders the setting's value in c, without secrets.
func (s setting) show(c Config) string {
	text := fmt.Sprint(reflect.ValueOf(c).FieldByName(s.field).Interface())
	if s.private && text != "" {
		return hidden
	}
	return text
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

func atLeast[T int | time.Duration](value, least T) string {
	if value < least {
		return fmt.Sprintf("%v is less than %v", value, least)
	}
	return ""
}
