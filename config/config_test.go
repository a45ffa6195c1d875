package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
)

func TestFromEnvReadsEveryVariable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("from a file\n"), 0o600))
	setenv(t, map[string]string{
		"WLLOCK_SYSTEM_NAME":           "order",
		"WLLOCK_BACKEND":               "redis://redis:6379/1",
		"WLLOCK_SINGLE_WAIT_THRESHOLD": "500, product=200,cart=unlimited",
		"WLLOCK_FLEET_THRESHOLD":       "50",
		"WLLOCK_LOCK_TIME_MAX":         "1m",
		"WLLOCK_LEASE_TTL":             "3s",
		"WLLOCK_MAX_HANDOFFS":          "7",
		"WLLOCK_MAX_TENURE":            "20ms",
		"WLLOCK_LINGER":                "5ms",
		"WLLOCK_WAIT":                  "2s",
		"WLLOCK_OUTAGE":                "local",
		"WLLOCK_LONGEST_TTL":           "7s",
		"WLLOCK_REDIS_USERNAME":        "locks",
		"WLLOCK_REDIS_PASSWORD_FILE":   file,
		"WLLOCK_REDIS_KEY":             "{name}:{key}",
		"WLLOCK_REDIS_INTEROP_GAP":     "25ms",
		"WLLOCK_REDIS_REPLICA_ACKS":    "2",
		"WLLOCK_REDIS_ACKS_WITHIN":     "100ms",
	})
	got, err := config.FromEnv()
	require.NoError(t, err)
	require.Equal(t, config.Config{
		SystemName: "order", Backend: config.NewURL("redis://redis:6379/1"),
		SingleWaitThreshold: config.Thresholds{Default: 500, Names: map[string]int{"product": 200, "cart": wllock.Unlimited}},
		FleetThreshold:      50,
		LockTimeMax:         time.Minute, LeaseTTL: 3 * time.Second, MaxHandoffs: 7, MaxTenure: 20 * time.Millisecond,
		Linger: 5 * time.Millisecond, Wait: 2 * time.Second, Outage: config.LocalOnly, LongestTTL: 7 * time.Second,
		RedisUsername: "locks", RedisPasswordFile: file,
		RedisKey: "{name}:{key}", RedisInteropGap: 25 * time.Millisecond,
		RedisReplicaAcks: 2, RedisAcksWithin: 100 * time.Millisecond,
	}, got)
}

func TestDefaultsAreThoseOfTheLibrary(t *testing.T) {
	setenv(t, map[string]string{"WLLOCK_SYSTEM_NAME": "order"})
	got, err := config.FromEnv()
	require.NoError(t, err)

	require.Equal(t, valid(), got)
	require.Equal(t, wllock.DefaultThreshold, got.SingleWaitThreshold.Default)
	require.Equal(t, wllock.DefaultLeaseTTL, got.LeaseTTL)
	require.Equal(t, wllock.DefaultLockTimeMax, got.LockTimeMax)
	require.Equal(t, wllock.DefaultMaxHandoffs, got.MaxHandoffs)
	require.Equal(t, wllock.DefaultMaxTenure, got.MaxTenure)
	require.Equal(t, wllock.DefaultLinger, got.Linger)
	require.Zero(t, got.Wait)
}

func TestSetButEmptyIsNotSet(t *testing.T) {
	setenv(t, map[string]string{
		"WLLOCK_SYSTEM_NAME": "order", "WLLOCK_LEASE_TTL": "", "WLLOCK_MAX_HANDOFFS": " ",
		"WLLOCK_SINGLE_WAIT_THRESHOLD": "", "WLLOCK_OUTAGE": "", "WLLOCK_REDIS_PASSWORD": "", "WLLOCK_REDIS_PASSWORD_FILE": "",
	})
	got, err := config.FromEnv()
	require.NoError(t, err)
	require.Equal(t, valid(), got)
}

func TestWrongSettings(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	for _, test := range []struct{ variable, value, fault string }{
		{"WLLOCK_SYSTEM_NAME", "", "is required"},
		{"WLLOCK_SYSTEM_NAME", "two words", `"two words" is not a name`},
		{"WLLOCK_SYSTEM_NAME", "or:der", `"or:der" is not a name`},
		{"WLLOCK_SYSTEM_NAME", strings.Repeat("x", 65), `"` + strings.Repeat("x", 64) + `"... is not a name`},
		{"WLLOCK_BACKEND", "", "is required"},
		{"WLLOCK_BACKEND", "redis", "is not a URL"},
		{"WLLOCK_BACKEND", "redis://:pa/ss@redis", "has one of / ? #"},
		{"WLLOCK_BACKEND", "redis://:password", "has no host"},
		{"WLLOCK_BACKEND", "redis://locks\n@redis", "is not one line"},
		{"WLLOCK_BACKEND", "redis://\ufeffredis", "a byte order mark"},
		{"WLLOCK_SINGLE_WAIT_THRESHOLD", "many", `has "many" instead of a number`},
		{"WLLOCK_SINGLE_WAIT_THRESHOLD", "-1", `has "-1" instead of a number`},
		{"WLLOCK_SINGLE_WAIT_THRESHOLD", "5,", `has "" instead of a number`},
		{"WLLOCK_SINGLE_WAIT_THRESHOLD", "a=010", `has "010" instead of a number`},
		{"WLLOCK_SINGLE_WAIT_THRESHOLD", "5,6", "has two numbers without a name"},
		{"WLLOCK_SINGLE_WAIT_THRESHOLD", "a=5,a=6", `names "a" twice`},
		{"WLLOCK_SINGLE_WAIT_THRESHOLD", "=5", `has "" instead of a name`},
		{"WLLOCK_SINGLE_WAIT_THRESHOLD", "a:5", `has "a:5" instead of a number`},
		{"WLLOCK_LOCK_TIME_MAX", "-1s", "-1s is less than 0s"},
		{"WLLOCK_LEASE_TTL", "5", `"5" is not a duration`},
		{"WLLOCK_LEASE_TTL", "10ms", "10ms is less than 50ms"},
		{"WLLOCK_MAX_HANDOFFS", "1.5", `"1.5" is not a whole number`},
		{"WLLOCK_MAX_HANDOFFS", "-1", "-1 is less than 0"},
		{"WLLOCK_MAX_HANDOFFS", "010", `"010" is not a whole number in the decimal system`},
		{"WLLOCK_MAX_HANDOFFS", "0x10", `"0x10" is not a whole number in the decimal system`},
		{"WLLOCK_MAX_TENURE", "0s", "0s is less than 1ns"},
		{"WLLOCK_LINGER", "-5ms", "-5ms is less than 0s"},
		{"WLLOCK_WAIT", "-1s", "-1s is less than 0s"},
		{"WLLOCK_OUTAGE", "open", `"open" is not an outage policy`},
		{"WLLOCK_KEY_SECRET", "fifteen bytes..\n", "has less than 16 bytes"},
		{"WLLOCK_KEY_SECRET", "sixteen bytes or more\nand a line", "is not one line of UTF-8"},
		{"WLLOCK_KEY_SECRET_FILE", empty, "names an empty file"},
		{"WLLOCK_KEY_SECRETS", "sixteen bytes or more", "did you mean WLLOCK_KEY_SECRET?"},
		{"WLLOCK_REDIS_USERNAME", "lo\ncks", "is not one line"},
		{"WLLOCK_REDIS_USERNAME", "locks\ufeff", "a byte order mark"},
		{"WLLOCK_REDIS_USERNAME", "locks", "is set, but WLLOCK_BACKEND is not Redis"},
		{"WLLOCK_REDIS_PASSWORD", "hunter2\nhunter3", "is not one line of UTF-8"},
		{"WLLOCK_REDIS_PASSWORD", "hunter2", "is set, but WLLOCK_BACKEND is not Redis"},
		{"WLLOCK_REDIS_PASSWORD_FILE", empty, "is set, but WLLOCK_BACKEND is not Redis"},
		{"WLLOCK_REDIS_KEY", "{name}", "has no {key}: all locks would be one"},
		{"WLLOCK_REDIS_KEY", "wllock:shop:{key}", "begins with wllock:, as helper keys do"},
		{"WLLOCK_REDIS_KEY", "{Shop}:{kye}:{key}", `has "{kye}", which stands for nothing`},
		{"WLLOCK_REDIS_KEY", "{Key}:{key}", `has "{Key}", which stands for nothing`},
		{"WLLOCK_REDIS_KEY", "{name}:{key}", "is set, but WLLOCK_BACKEND is not Redis"},
		{"WLLOCK_REDIS_INTEROP_GAP", "-1s", "-1s is less than 0s"},
		{"WLLOCK_REDIS_INTEROP_GAP", "25ms", "is set, but WLLOCK_BACKEND is not Redis"},
		{"WLLOCK_REDIS_REPLICA_ACKS", "-1", "-1 is less than 0"},
		{"WLLOCK_REDIS_REPLICA_ACKS", "1", "is set, but WLLOCK_BACKEND is not Redis"},
		{"WLLOCK_REDIS_ACKS_WITHIN", "0s", "0s is less than 1ms"},
		{"WLLOCK_LEASE_TLT", "5s", "is not a setting; did you mean WLLOCK_LEASE_TTL?"},
	} {
		t.Run(test.variable+"="+test.value, func(t *testing.T) {
			setenv(t, map[string]string{"WLLOCK_SYSTEM_NAME": "order", test.variable: test.value})
			_, err := config.FromEnv()
			var wrong *config.Error
			require.ErrorAs(t, err, &wrong)
			require.Len(t, wrong.Problems, 1, err)
			require.Equal(t, test.variable, wrong.Problems[0].Variable)
			require.Contains(t, wrong.Problems[0].Fault, test.fault)
			require.NotEmpty(t, wrong.Problems[0].Allowed)
			require.Contains(t, wrong.Problems[0].Example, "WLLOCK_")
		})
	}
}

// All variables are read by one rule: what stands unseen at their ends is taken off, and quotation marks around them are refused. The error names the
// variable, and shows no value.
func TestAllVariablesAreReadByOneRule(t *testing.T) {
	values := map[string]string{
		"WLLOCK_SYSTEM_NAME": "order", "WLLOCK_BACKEND": "rediss://redis", "WLLOCK_SINGLE_WAIT_THRESHOLD": "7", "WLLOCK_LOCK_TIME_MAX": "7s",
		"WLLOCK_LEASE_TTL": "7s", "WLLOCK_MAX_HANDOFFS": "7", "WLLOCK_MAX_TENURE": "7s", "WLLOCK_LINGER": "7s", "WLLOCK_WAIT": "7s",
		"WLLOCK_OUTAGE": "local", "WLLOCK_LONGEST_TTL": "7s", "WLLOCK_INSTANCE": "web", "WLLOCK_KEY_SECRET": "hunter2 hunter2 hunter2",
		"WLLOCK_TLS_SERVER_NAME": "locks", "WLLOCK_REDIS_USERNAME": "locks", "WLLOCK_REDIS_PASSWORD": "hunter2", "WLLOCK_REDIS_KEY": "{name}:{key}",
		"WLLOCK_REDIS_INTEROP_GAP": "7s", "WLLOCK_REDIS_REPLICA_ACKS": "7", "WLLOCK_REDIS_ACKS_WITHIN": "7ms",
	}
	setenv(t, values)
	want, err := config.FromEnv()
	require.NoError(t, err)
	for name, value := range values {
		for _, around := range [][2]string{{"", "\r"}, {"", "\r\n"}, {"", " \t\n"}, {"\ufeff", ""}} {
			t.Setenv(name, around[0]+value+around[1])
			got, err := config.FromEnv()
			require.NoError(t, err)
			require.Equal(t, want, got, "%s %q", name, around)
		}
		for _, around := range []string{`"`, "'"} {
			t.Setenv(name, around+value+around+"\r")
			_, err := config.FromEnv()
			require.ErrorContains(t, err, name+" is in quotation marks")
			require.NotContains(t, err.Error(), "hunter2")
		}
		t.Setenv(name, value)
	}
}

// Helper keys begin with wllock: on Redis, and so would the locks of such a system.
func TestWllockIsNoSystemOnRedis(t *testing.T) {
	c := valid()
	c.SystemName = "wllock"
	for _, url := range []string{"redis://redis", "redis+cluster://a,b", "redlock://a,b,c"} {
		c.Backend = config.NewURL(url)
		require.ErrorContains(t, c.Validate(), `WLLOCK_SYSTEM_NAME "wllock" is no system on Redis`, url)
	}
	c.Backend = config.NewURL("memory://")
	require.NoError(t, c.Validate())
}

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	setenv(t, map[string]string{
		"WLLOCK_LEASE_TTL": "soon", "WLLOCK_LINGER": "-1s", "WLLOCK_BACKEND": "nowhere", "WLLOCK_MAX_HANDOFS": "3", "WLLOCK_WIAT": "3",
	})
	_, err := config.FromEnv()
	require.EqualError(t, err, strings.TrimSpace(`
wllock: 6 wrong settings:
  WLLOCK_SYSTEM_NAME is required (allowed: 1 to 64 of the characters A-Z a-z 0-9 . _ / -; example: WLLOCK_SYSTEM_NAME=order)
  WLLOCK_BACKEND is not a URL (allowed: scheme://[user:password@]host[:port][/path][?options], user and password percent-encoded; schemes: redis, redis+cluster, redis+sentinel, redis+unix, rediss, rediss+cluster, rediss+sentinel, redlock, redlocks, unix, memory (memory:// locks within this process only), and what the program adds with Config.WithOpener; example: WLLOCK_BACKEND=redis://redis:6379/0)
  WLLOCK_LEASE_TTL "soon" is not a duration (allowed: a duration, 50ms or more; example: WLLOCK_LEASE_TTL=5s)
  WLLOCK_LINGER -1s is less than 0s (allowed: a duration, not negative; example: WLLOCK_LINGER=20ms)
  WLLOCK_MAX_HANDOFS is not a setting; did you mean WLLOCK_MAX_HANDOFFS? (allowed: a whole number, not negative; example: WLLOCK_MAX_HANDOFFS=128)
  WLLOCK_WIAT is not a setting; did you mean WLLOCK_WAIT? (allowed: a duration, not negative; example: WLLOCK_WAIT=2s)`))
}

// A backend that is forgotten in one deployment would let each of its processes lock for itself.
func TestABackendIsNamed(t *testing.T) {
	setenv(t, map[string]string{"WLLOCK_SYSTEM_NAME": "order", "WLLOCK_BACKEND": ""})
	_, fromEnv := config.FromEnv()
	c := config.Default()
	c.SystemName = "order"
	_, open := c.Open(t.Context())
	for _, err := range []error{fromEnv, open} {
		require.ErrorContains(t, err, "wllock: wrong setting: WLLOCK_BACKEND is required (allowed: scheme://")
		require.ErrorContains(t, err, "schemes: redis, redis+cluster,")
		require.ErrorContains(t, err, "memory:// locks within this process only")
		require.NotContains(t, err.Error(), "\n")
	}
}

// A wrong scheme is told with the other mistakes, but not alone: the program may have an opener for it.
func TestAForeignSchemeIsReportedWithTheOthers(t *testing.T) {
	for backend, told := range map[string]bool{
		"foo://user:hunter2@host": true, "postgresql://user:hunter2@host/shop": false, "zk://host": false, "redis://host": false, "memory://": false,
	} {
		setenv(t, map[string]string{"WLLOCK_SYSTEM_NAME": "order", "WLLOCK_BACKEND": backend})
		_, err := config.FromEnv()
		require.NoError(t, err, backend)
		t.Setenv("WLLOCK_LINGER", "soon")
		_, err = config.FromEnv()
		require.ErrorContains(t, err, "WLLOCK_LINGER")
		require.Equal(t, told, strings.Contains(err.Error(), `WLLOCK_BACKEND "foo" is the scheme of no backend of wllock`), err)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestGuessesAtMisspelledVariables(t *testing.T) {
	for name, want := range map[string]string{
		"WLLOCK_TTL": "WLLOCK_LEASE_TTL", "WLLOCK_THRESHOLD": "WLLOCK_SINGLE_WAIT_THRESHOLD", "WLLOCK_SYSTEM": "WLLOCK_SYSTEM_NAME",
		"WLLOCK_PASSWORD": "WLLOCK_REDIS_PASSWORD", "WLLOCK_LEASE_TTL_SECONDS": "WLLOCK_LEASE_TTL", "WLLOCK_BACKEND_URL": "WLLOCK_BACKEND",
		"WLLOCK_WIAT": "WLLOCK_WAIT", "WLLOCK_LEASETTL": "WLLOCK_LEASE_TTL", "WLLOCK_TIMEOUT": "", "WLLOCK_URL": "", "WLLOCK_DEBUG": "", "WLLOCK_": "",
	} {
		setenv(t, map[string]string{"WLLOCK_SYSTEM_NAME": "order", name: "7"})
		_, err := config.FromEnv()
		require.ErrorContains(t, err, name+" is not a setting")
		if want == "" {
			require.NotContains(t, err.Error(), "did you mean")
			require.ErrorContains(t, err, "(allowed: WLLOCK_SYSTEM_NAME, WLLOCK_BACKEND,")
			require.NotContains(t, err.Error(), "example")
		} else {
			require.ErrorContains(t, err, "did you mean "+want+"?")
		}
	}
}

func TestOtherVariablesAreIgnored(t *testing.T) {
	setenv(t, map[string]string{
		"WLLOCK_SYSTEM_NAME": "order",
		"WLLOCK_LOCK_KEY":    "order:product:7", "WLLOCK_LOCK_FENCE": "12", "WLLOCK_LOCK_PID": "4711", // we run under `wllock run`
		"WLLOCK_SERVICE_HOST": "10.0.0.1", "WLLOCK_SERVICE_PORT": "80", "WLLOCK_PORT": "tcp://10.0.0.1:80", // a service named wllock
		"WLLOCK_REDIS_PORT_6379_TCP_ADDR": "10.0.0.1", "WLLOCK_REDIS_SERVICE_PORT_REDIS": "6379", // and one named wllock-redis
	})
	_, err := config.FromEnv()
	require.NoError(t, err)
}

func TestUnprefixedVariablesAreNotRead(t *testing.T) { // envconfig does so for fields with an explicit name
	setenv(t, map[string]string{"WLLOCK_SYSTEM_NAME": "order"})
	t.Setenv("WAIT", "3s")
	got, err := config.FromEnv()
	require.NoError(t, err)
	require.Zero(t, got.Wait)
}

func TestZeroConfigIsNotValid(t *testing.T) {
	var wrong *config.Error
	require.ErrorAs(t, config.Config{}.Validate(), &wrong)
	require.Greater(t, len(wrong.Problems), 1)
}

func TestValidateConfigsMadeInCode(t *testing.T) {
	c := valid()
	require.NoError(t, c.Validate())

	c.SingleWaitThreshold = config.Thresholds{Default: -7, Names: map[string]int{"a:b": 1}}
	require.ErrorContains(t, c.Validate(), "WLLOCK_SINGLE_WAIT_THRESHOLD has -7 instead of a number")
	c.SingleWaitThreshold.Default = 0
	require.ErrorContains(t, c.Validate(), `has "a:b" instead of a name`)
}

// TestConfigTakesWhatTheCalculatorSays: each variable is known, and each value is allowed.
func TestConfigTakesWhatTheCalculatorSays(t *testing.T) {
	text, err := os.ReadFile("../tools/site/testdata/settings.json")
	require.NoError(t, err)
	var shops []map[string]string
	require.NoError(t, json.Unmarshal(text, &shops))
	require.NotEmpty(t, shops)
	for _, shop := range shops {
		t.Setenv("WLLOCK_SYSTEM_NAME", "order")
		t.Setenv("WLLOCK_BACKEND", "memory://")
		for name, value := range shop {
			t.Setenv(name, value)
		}
		_, err := config.FromEnv()
		require.NoError(t, err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setenv makes vars, and memory:// unless they name a backend, the only settings in the environment of the test.
func setenv(t *testing.T, vars map[string]string) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "WLLOCK_") {
			t.Setenv(name, value) // puts it back at the end
			os.Unsetenv(name)
		}
	}
	t.Setenv("WLLOCK_BACKEND", "memory://")
	for name, value := range vars {
		t.Setenv(name, value)
	}
}
