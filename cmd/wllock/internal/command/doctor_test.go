//go:build linux

package command

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/dbtest"
	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/zktest"
)

// examined returns the findings of wllock doctor, by subject, as "level: what", and the exit code.
func examined(t *testing.T, env []string, args ...string) (code int, found map[string]string) {
	t.Helper()
	code, out, err := run(t, env, append([]string{"doctor", "--json"}, args...)...)
	require.Empty(t, err)
	var all []struct{ Level, Subject, What, Means, Mend string }
	require.NoError(t, json.Unmarshal([]byte(out), &all), out)
	found = map[string]string{}
	for _, f := range all {
		found[f.Subject] = f.Level + ": " + f.What + " | " + f.Mend
		require.Equal(t, f.Level == "ok", f.Means == "", f.What)
		require.NotContains(t, f.What, "hunter2")
	}
	return code, found
}

func TestDoctorOfAHealthyRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes")
	code, found := examined(t, shop("redis://"+s.Addr, "WLLOCK_LEASE_TTL=10s"))
	require.Zero(t, code, found)
	for _, subject := range []string{"access", "lock", "version", "replicas", "eviction", "persistence", "lock keys", "clock", "pub/sub"} {
		require.Contains(t, found, subject)
	}
	code, out, _ := run(t, shop("redis://"+s.Addr, "WLLOCK_LEASE_TTL=10s"), "doctor")
	require.Zero(t, code)
	require.Regexp(t, `(?m)^ok       version      Redis 7\S+, port \d+$`, out)
}

func TestDoctorOfARedis(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare       func(s *redistest.Server, env []string) []string
		code          int
		subject, want string
	}{
		"evicts": {func(s *redistest.Server, env []string) []string {
			s.Do("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
			return nil
		}, wrong, "eviction", `error: maxmemory-policy allkeys-lru.*CONFIG SET maxmemory-policy noeviction`},
		"may evict": {func(s *redistest.Server, env []string) []string {
			s.Do("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
			return nil
		}, no, "eviction", `warning: .*without maxmemory`},
		"is full": {func(s *redistest.Server, env []string) []string {
			s.Do("SET", "big", strings.Repeat("x", 20<<20))
			s.Do("CONFIG", "SET", "maxmemory", "27mb")
			return nil
		}, no, "memory", `warning: `},
		"forgets": {func(*redistest.Server, []string) []string { return nil }, no, "persistence", `warning: no append-only file.*appendonly yes`},
		"another system's user": {func(s *redistest.Server, env []string) []string {
			s.Do("ACL", "SETUSER", "u", "on", ">hunter2", "~cart:*", "~wllock:shop:*", "&wllock:shop:*", "+@all")
			return []string{"redis://u:hunter2@" + s.Addr}
		}, wrong, "access", `error: .*lacks the ACL rule ~shop:\*.*ACL SETUSER u '~shop:\*'`},
		"no right to publish": {func(s *redistest.Server, env []string) []string {
			s.Do("ACL", "SETUSER", "u", "on", ">hunter2", "~shop:*", "~wllock:shop:*", "+@all")
			return []string{"redis://u:hunter2@" + s.Addr}
		}, wrong, "access", `error: .*&wllock:shop:\*.*ACL SETUSER u '&wllock:shop:\*'`},
		"no right to publish over Redlock": {func(s *redistest.Server, env []string) []string {
			all := []*redistest.Server{s, redistest.Start(t), redistest.Start(t)}
			var addrs []string
			for _, one := range all {
				one.Do("ACL", "SETUSER", "u", "on", ">hunter2", "~shop:*", "~wllock:shop:*", "&wllock:cart:*", "+@all")
				addrs = append(addrs, one.Addr)
			}
			return []string{"redlock://u:hunter2@" + strings.Join(addrs, ",")}
		}, wrong, "access", `error: .*&wllock:shop:\*.*ACL SETUSER u '&wllock:shop:\*'`},
		"no right to INFO": {func(s *redistest.Server, env []string) []string {
			s.Do("ACL", "SETUSER", "u", "on", ">hunter2", "~shop:*", "~wllock:shop:*", "&wllock:shop:*", "+@all", "-info")
			return []string{"redis://u:hunter2@" + s.Addr}
		}, no, "server", `warning: .*INFO.*\+info`},
		"no INFO": {func(*redistest.Server, []string) []string {
			return []string{"redis://" + redistest.Start(t, "--rename-command", "INFO", "").Addr}
		}, no, "server", `warning: the server has no INFO.*rename-command INFO out of redis.conf`},
		"no TIME": {func(*redistest.Server, []string) []string {
			return []string{"redis://" + redistest.Start(t, "--rename-command", "TIME", "").Addr}
		}, wrong, "access", `error: .*lacks the commands TIME.*out of redis.conf`},
		"a cache in the locks' keys": {func(s *redistest.Server, env []string) []string {
			s.Do("HSET", "shop:product:1000", "price", "7")
			return nil
		}, no, "lock keys", `warning: keys like shop:\*:\* whose values are not wllock's: 1, among them "shop:product:1000", which never expires.*WLLOCK_SYSTEM_NAME`},
		"a cache that expires": {func(s *redistest.Server, env []string) []string {
			s.Do("SET", "shop:product:1000", "{}", "EX", "600")
			s.Do("SET", "shop-locks:product:1000", "another system's")
			return nil
		}, no, "lock keys", `warning: .*: 1, among them "shop:product:1000", which expires in 10m0s`},
		"no right to SCAN": {func(s *redistest.Server, env []string) []string {
			s.Do("ACL", "SETUSER", "u", "on", ">hunter2", "~shop:*", "~wllock:shop:*", "&wllock:shop:*", "+@all", "-scan")
			return []string{"redis://u:hunter2@" + s.Addr}
		}, no, "lock keys", `ok: not looked at: NOPERM.*ls and top take redis-cli ACL SETUSER u \+scan \+getrange`},
		"a wrong password": {func(s *redistest.Server, env []string) []string {
			return []string{"redis://u:hunter2@" + s.Addr}
		}, wrong, "access", `error: .*WRONGPASS.*WLLOCK_REDIS_PASSWORD_FILE`},
		"a replica": {func(s *redistest.Server, env []string) []string {
			s.Do("REPLICAOF", "127.0.0.1", "1")
			return nil
		}, wrong, "role", `error: this is a replica.*127.0.0.1:1`},
		"nobody there": {func(s *redistest.Server, env []string) []string {
			s.Kill()
			return nil
		}, wrong, "access", `error: .*refused.*start the server`},
		"a stopped one": {func(s *redistest.Server, env []string) []string {
			s.Pause()
			return nil
		}, wrong, "access", `error: .*a stopped process`},
		"not a cluster": {func(s *redistest.Server, env []string) []string {
			return []string{"redis+cluster://" + s.Addr}
		}, wrong, "cluster", `error: `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, env := redis(t)
			args := append([]string{"--timeout", "2s"}, test.prepare(s, env)...)
			code, found := examined(t, append(env, "WLLOCK_LEASE_TTL=10s"), args...)
			require.Equal(t, test.code, code, found)
			require.Regexp(t, test.want, found[test.subject])
			require.False(t, name == "a stopped one" && len(found) > 1, "a server that is silent is asked once: %v", found)
		})
	}
}

func TestDoctorOfAPrimaryWithAReplica(t *testing.T) {
	t.Parallel()
	s, env := redis(t)
	replica := redistest.Start(t)
	replica.Do("REPLICAOF", "127.0.0.1", s.Port)
	redistest.Eventually(t, patience, "the replica follows", func() bool {
		_, found := examined(t, env)
		return strings.HasPrefix(found["replicas"], "warning: 1")
	})
}

func TestDoctorOfACluster(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	c := redistest.StartCluster(t)
	code, found := examined(t, shop("redis+cluster://"+strings.Join(c.Addrs(), ",")))
	require.Equal(t, no, code, found)
	require.Regexp(t, "^ok: state ok", found["cluster"])
	code, found = examined(t, shop("redis://"+c.Addrs()[0]))
	require.Equal(t, wrong, code)
	require.Contains(t, found["cluster"], "redis+cluster://")
}

func TestDoctorOfDatabases(t *testing.T) {
	t.Parallel()
	postgres := dbtest.SharedPostgres(t)
	lite := "sqlite://" + filepath.Join(t.TempDir(), "locks.db")
	for name, url := range map[string]string{"postgres": postgres.URL(), "mysql": dbtest.SharedMariaDB(t).URL(), "sqlite": lite} {
		env := shop(url, "WLLOCK_LEASE_TTL=10s")
		if name != "sqlite" { // a file makes its own tables
			code, found := examined(t, env)
			require.Equal(t, wrong, code, name)
			require.Regexp(t, "error: .*wllock migrate", found["access"], name)
		}
		code, out, err := run(t, env, "migrate")
		require.Zero(t, code, err)
		require.Contains(t, out, "wllock_meta are there\n")
		_, found := examined(t, env)
		require.Contains(t, found["access"], "ok: ", name)
		require.Contains(t, found["unused rows"], "ok: ", name)
		if name == "sqlite" {
			require.Contains(t, found["file"], "ok: ", name)
			require.Contains(t, found["tables"], "ok: ", name)
		} else {
			require.Contains(t, found["lock"], "lock and unlock", name)
			require.Contains(t, found["version"], "ok: ", name)
			require.Contains(t, found["role"], "ok: ", name)
			require.Contains(t, found["clock"], "ok: ", name)
		}
	}
	_, found := examined(t, shop(postgres.URL()))
	require.Contains(t, found["durability"], "synchronous_commit off") // as the test server is
}

// Looking leaves the folder as it is, also when there is no file yet.
func TestLookingAtAFileChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := shop("sqlite://" + filepath.Join(dir, "locks.db"))
	look := func(want int) {
		t.Helper()
		for _, args := range [][]string{{"who", "job", "1"}, {"ls"}, {"top", "--once"}} {
			code, out, err := run(t, env, args...)
			if want != unavailable && args[0] != "who" {
				require.Zero(t, code, "%s%s", out, err)
				continue
			}
			require.Equal(t, want, code, "%v %s%s", args, out, err)
		}
	}
	names := func() (all []string) {
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range files {
			all = append(all, f.Name())
		}
		return all
	}
	look(unavailable)
	code, found := examined(t, env)
	require.Equal(t, no, code)
	require.Contains(t, found["file"], "warning: there is none yet")
	require.Empty(t, names())
	code, _, err := run(t, env, "run", "job", "1", "--", "true")
	require.Zero(t, code, err)
	require.Equal(t, []string{"locks.db"}, names())
	look(no)
	code, found = examined(t, env)
	require.Zero(t, code, found)
	require.Equal(t, []string{"locks.db"}, names())
}

// A row is there for twice the time after which it should go.
func TestDoctorOfADatabaseWithUnusedRows(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks.db")
	env := shop("sqlite://"+file, "WLLOCK_LEASE_TTL=10s")
	code, _, err := run(t, env, "migrate")
	require.Zero(t, code, err)
	db, fault := sql.Open("sqlite", file)
	require.NoError(t, fault)
	defer func() { require.NoError(t, db.Close()) }()
	_, fault = db.Exec("INSERT INTO wllock_locks (name, fence, update_time) VALUES ('k', 1, ?)", time.Now().Add(-49*time.Hour).UnixMicro())
	require.NoError(t, fault)
	code, found := examined(t, env)
	require.Equal(t, no, code, found)
	require.Regexp(t, `^warning: are not all deleted, since \d{4}-.* UTC: 1 \| look for`, found["unused rows"])
}

func TestDoctorOfZooKeeper(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t)
	code, found := examined(t, shop("zk://"+s.Addr+",127.0.0.1:1", "WLLOCK_LEASE_TTL=10s"))
	require.Equal(t, wrong, code, found) // one of two is no majority
	require.Contains(t, found["quorum"], "error: 1 of 2")
	code, found = examined(t, shop("zk://"+s.Addr, "WLLOCK_LEASE_TTL=10s"))
	require.Equal(t, no, code, found)
	require.Contains(t, found["server"], "standalone")
	require.Contains(t, found["nodes"], "ok: ")
}

func TestDoctorOfEtcd(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	code, found := examined(t, shop("etcd://"+s.Addr, "WLLOCK_LEASE_TTL=10s"))
	require.Equal(t, no, code, found)
	require.Regexp(t, `^ok: .*etcd 3\.`, found["member"])
	require.Contains(t, found["members"], "warning: 1")
	require.Contains(t, found["alarms"], "ok: none")
	require.Regexp(t, "^ok: .*: [0-9]+ of 2048 MB", found["quota"])
	require.Regexp(t, "^ok: revision [0-9]+, .*: false", found["compaction"])
}
