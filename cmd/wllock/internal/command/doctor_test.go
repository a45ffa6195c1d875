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

// finds is examined, with the exit code that it must have.
func finds(t *testing.T, want int, env []string, args ...string) map[string]string {
	t.Helper()
	code, found := examined(t, env, args...)
	require.Equal(t, want, code, found)
	return found
}

func TestDoctorOfAHealthyRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes")
	env := shop("redis://"+s.Addr, "WLLOCK_LEASE_TTL=10s")
	found := finds(t, 0, env)
	for _, subject := range []string{"access", "lock", "version", "replicas", "eviction", "persistence", "lock keys", "clock", "pub/sub"} {
		require.Contains(t, found, subject)
	}
	out, _ := exits(t, 0, env, "doctor")
	require.Regexp(t, `(?m)^ok       version      Redis 7\S+, port \d+$`, out)
}

func TestDoctorOfARedis(t *testing.T) {
	t.Parallel()
	type prepare = func(*redistest.Server) (url []string) // url: what the doctor is given, instead of the environment's
	do := func(commands ...string) prepare {
		return func(s *redistest.Server) []string {
			for _, c := range commands {
				s.Do(anys(strings.Fields(c))...)
			}
			return nil
		}
	}
	user := func(rules string) prepare {
		return func(s *redistest.Server) []string {
			do("ACL SETUSER u on >hunter2 " + rules)(s)
			return []string{"redis://u:hunter2@" + s.Addr}
		}
	}
	without := func(command string) prepare {
		return func(*redistest.Server) []string {
			return []string{"redis://" + redistest.Start(t, "--rename-command", command, "").Addr}
		}
	}
	const full = "~wllock:shop:* &wllock:shop:* +@all"
	for name, test := range map[string]struct {
		prepare       prepare
		code          int
		subject, want string
	}{
		"evicts": {do("CONFIG SET maxmemory 100mb maxmemory-policy allkeys-lru"), wrong, "eviction",
			`error: maxmemory-policy allkeys-lru.*CONFIG SET maxmemory-policy noeviction`},
		"may evict": {do("CONFIG SET maxmemory-policy volatile-ttl"), no, "eviction", `warning: .*without maxmemory`},
		"is full":   {do("SET big "+strings.Repeat("x", 20<<20), "CONFIG SET maxmemory 27mb"), no, "memory", `warning: `},
		"forgets":   {do(), no, "persistence", `warning: no append-only file.*appendonly yes`},
		"another system's user": {user("~cart:* " + full), wrong, "access",
			`error: .*lacks the ACL rule ~shop:\*.*ACL SETUSER u '~shop:\*'`},
		"no right to publish": {user("~shop:* ~wllock:shop:* +@all"), wrong, "access",
			`error: .*&wllock:shop:\*.*ACL SETUSER u '&wllock:shop:\*'`},
		"no right to publish over Redlock": {func(s *redistest.Server) []string {
			all := []*redistest.Server{s, redistest.Start(t), redistest.Start(t)}
			var addrs []string
			for _, one := range all {
				user("~shop:* ~wllock:shop:* &wllock:cart:* +@all")(one)
				addrs = append(addrs, one.Addr)
			}
			return []string{"redlock://u:hunter2@" + strings.Join(addrs, ",")}
		}, wrong, "access", `error: .*&wllock:shop:\*.*ACL SETUSER u '&wllock:shop:\*'`},
		"no right to INFO": {user("~shop:* " + full + " -info"), no, "server", `warning: .*INFO.*\+info`},
		"no INFO":          {without("INFO"), no, "server", `warning: the server has no INFO.*rename-command INFO out of redis.conf`},
		"no TIME":          {without("TIME"), wrong, "access", `error: .*lacks the commands TIME.*out of redis.conf`},
		"a cache in the locks' keys": {do("HSET shop:product:1000 price 7"), no, "lock keys",
			`warning: keys like shop:\*:\* whose values are not wllock's: 1, among them "shop:product:1000", which never expires.*WLLOCK_SYSTEM_NAME`},
		"a cache that expires": {do("SET shop:product:1000 {} EX 600", "SET shop-locks:product:1000 another's"), no, "lock keys",
			`warning: .*: 1, among them "shop:product:1000", which expires in (10m0s|9m5)`},
		"no right to SCAN": {user("~shop:* " + full + " -scan"), no, "lock keys",
			`ok: not looked at: NOPERM.*ls and top take redis-cli ACL SETUSER u \+scan \+getrange`},
		"a wrong password": {func(s *redistest.Server) []string { return []string{"redis://u:hunter2@" + s.Addr} }, wrong, "access",
			`error: .*WRONGPASS.*WLLOCK_REDIS_PASSWORD_FILE`},
		"a replica":     {do("REPLICAOF 127.0.0.1 1"), wrong, "role", `error: this is a replica.*127.0.0.1:1`},
		"nobody there":  {func(s *redistest.Server) []string { s.Kill(); return nil }, wrong, "access", `error: .*refused.*start the server`},
		"a stopped one": {func(s *redistest.Server) []string { s.Pause(); return nil }, wrong, "access", `error: .*a stopped process`},
		"not a cluster": {func(s *redistest.Server) []string { return []string{"redis+cluster://" + s.Addr} }, wrong, "cluster", `error: `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, env := redis(t)
			found := finds(t, test.code, append(env, "WLLOCK_LEASE_TTL=10s"), append([]string{"--timeout", "2s"}, test.prepare(s)...)...)
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

func TestDoctorOfReplicasThatAcknowledge(t *testing.T) {
	t.Parallel()
	env := shop("redis://" + redistest.StartReplicated(t).Primary.Addr)
	found := finds(t, no, append(env, "WLLOCK_REDIS_REPLICA_ACKS=1"))
	require.Contains(t, found, "lock")
	require.NotContains(t, found["replicas"], "WLLOCK_REDIS_REPLICA_ACKS")
	found = finds(t, wrong, append(env, "WLLOCK_REDIS_REPLICA_ACKS=2"))
	require.Regexp(t, "^error: .*1 of 2 replicas have acknowledged within 500ms.*start more replicas", found["access"])
	require.Regexp(t, "^error: 1, and WLLOCK_REDIS_REPLICA_ACKS is 2.*start more replicas", found["replicas"])
}

func TestDoctorOfACluster(t *testing.T) {
	testscope.Long(t, "starts a cluster")
	t.Parallel()
	c := redistest.StartCluster(t)
	found := finds(t, no, shop("redis+cluster://"+strings.Join(c.Addrs(), ",")))
	require.Regexp(t, "^ok: state ok", found["cluster"])
	found = finds(t, wrong, shop("redis://"+c.Addrs()[0]))
	require.Contains(t, found["cluster"], "redis+cluster://")
	for _, n := range c.Nodes {
		n.AddUser(t, "redis.md", "shop", "+cluster|slots")
	}
	found = finds(t, no, shop("redis+cluster://shop:change-me@"+strings.Join(c.Addrs(), ",")))
	require.Regexp(t, "^ok: its state is not looked at: NOPERM.*'.cluster.info'", found["cluster"])
	require.Contains(t, found, "version", "the nodes are looked at")
}

func TestDoctorOfDatabases(t *testing.T) {
	t.Parallel()
	postgres := dbtest.SharedPostgres(t)
	lite := "sqlite://" + filepath.Join(t.TempDir(), "locks.db")
	for name, url := range map[string]string{"postgres": postgres.URL(), "mysql": dbtest.SharedMariaDB(t).URL(), "sqlite": lite} {
		env := shop(url, "WLLOCK_LEASE_TTL=10s")
		if name != "sqlite" { // a file makes its own tables
			require.Regexp(t, "error: .*wllock migrate", finds(t, wrong, env)["access"], name)
		}
		out, _ := exits(t, 0, env, "migrate")
		require.Contains(t, out, "wllock_runs are there\n")
		_, found := examined(t, env)
		fine := []string{"access", "unused rows", "file", "tables"}
		if name != "sqlite" {
			fine = []string{"access", "unused rows", "version", "role", "clock"}
			require.Contains(t, found["lock"], "lock and unlock", name)
		}
		for _, subject := range fine {
			require.Contains(t, found[subject], "ok: ", "%s: %s", name, subject)
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
	look := func(who, lists int) {
		t.Helper()
		exits(t, who, env, "who", "job", "1")
		exits(t, lists, env, "ls")
		exits(t, lists, env, "top", "--once")
	}
	names := func() (all []string) {
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range files {
			all = append(all, f.Name())
		}
		return all
	}
	look(unavailable, unavailable)
	found := finds(t, no, env)
	require.Contains(t, found["file"], "warning: there is none yet")
	require.Empty(t, names())
	exits(t, 0, env, "run", "job", "1", "--", "true")
	require.Equal(t, []string{"locks.db"}, names())
	look(no, 0)
	finds(t, 0, env)
	require.Equal(t, []string{"locks.db"}, names())
}

// A row is there for twice the time after which it should go.
func TestDoctorOfADatabaseWithUnusedRows(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks.db")
	env := shop("sqlite://"+file, "WLLOCK_LEASE_TTL=10s")
	exits(t, 0, env, "migrate")
	db, fault := sql.Open("sqlite", file)
	require.NoError(t, fault)
	defer func() { require.NoError(t, db.Close()) }()
	_, fault = db.Exec("INSERT INTO wllock_locks (name, fence, update_time) VALUES ('k', 1, ?)", time.Now().Add(-49*time.Hour).UnixMicro())
	require.NoError(t, fault)
	found := finds(t, no, env)
	require.Regexp(t, `^warning: are not all deleted, since \d{4}-.* UTC: 1 \| look for`, found["unused rows"])
}

func TestDoctorOfZooKeeper(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t)
	found := finds(t, wrong, shop("zk://"+s.Addr+",127.0.0.1:1", "WLLOCK_LEASE_TTL=10s")) // one of two is no majority
	require.Contains(t, found["quorum"], "error: 1 of 2")
	found = finds(t, no, shop("zk://"+s.Addr, "WLLOCK_LEASE_TTL=10s"))
	require.Contains(t, found["server"], "standalone")
	require.Contains(t, found["nodes"], "ok: ")
}

func TestDoctorOfEtcd(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	found := finds(t, no, shop("etcd://"+s.Addr, "WLLOCK_LEASE_TTL=10s"))
	require.Regexp(t, `^ok: .*etcd 3\.`, found["member"])
	require.Contains(t, found["members"], "warning: 1")
	require.Contains(t, found["alarms"], "ok: none")
	require.Regexp(t, "^ok: .*: [0-9]+ of 2048 MB", found["quota"])
	require.Regexp(t, "^ok: revision [0-9]+, .*: false", found["compaction"])
}
