package config_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/config"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

func Example() {
	os.Setenv("WLLOCK_SYSTEM_NAME", "order") // what a deployment does
	os.Setenv("WLLOCK_BACKEND", "memory://") // there redis://redis:6379, or another that its processes share
	defer os.Unsetenv("WLLOCK_SYSTEM_NAME")
	defer os.Unsetenv("WLLOCK_BACKEND")

	cfg, err := config.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	locker, err := cfg.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	err = locker.Do(ctx, "product", "1000", func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		fmt.Println("holding", held.Key())
		return nil
	})
	fmt.Println(err)
	// Output:
	// holding order:product:1000
	// <nil>
}

func ExampleFromEnv_wrong() {
	os.Setenv("WLLOCK_LEASE_TTL", "5")
	defer os.Unsetenv("WLLOCK_LEASE_TTL")

	_, err := config.FromEnv()
	var wrong *config.Error
	if errors.As(err, &wrong) {
		for _, p := range wrong.Problems {
			fmt.Println(p.Variable, p.Fault)
		}
	}
	// Output:
	// WLLOCK_SYSTEM_NAME is required
	// WLLOCK_BACKEND is required
	// WLLOCK_LEASE_TTL "5" is not a duration
}

func ExampleConfig() {
	cfg := config.Default()
	cfg.SystemName = "order"
	cfg.Backend = config.NewURL("redis://locks:hunter2@redis:6379/0")
	fmt.Println(cfg.Backend)
	// Output:
	// redis://locks:xxxxx@redis:6379/0
}

func ExampleConfig_WithOpener() {
	cfg := config.Default()
	cfg.SystemName = "order"
	cfg.Backend = config.NewURL("etcd://etcd-1:2379,etcd-2:2379")

	cfg = cfg.WithOpener("etcd", func(ctx context.Context, u *url.URL) (distributed.Backend, error) {
		fmt.Println("connecting to", u.Host)
		return memlock.New(), nil // yours
	})

	ctx := context.Background()
	locker, err := cfg.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(locker.Close(ctx))
	// Output:
	// connecting to etcd-1:2379,etcd-2:2379
	// <nil>
}

func ExampleUsage() {
	config.Usage(os.Stdout)
	// Output:
	// VARIABLE                      DEFAULT                EXAMPLE                         MEANING
	// WLLOCK_SYSTEM_NAME                                   order                           first part of every lock's name; required
	// WLLOCK_BACKEND                                       redis://redis:6379/0            where the locks are kept; memory:// is for this Locker alone; required
	// WLLOCK_SINGLE_WAIT_THRESHOLD  1000                   500,product=200,cart=unlimited  callers that may wait per key in one process
	// WLLOCK_FLEET_THRESHOLD        0                      100                             processes that may wait per key, over Redis, an SQL database or in memory; 0: any number
	// WLLOCK_LOCK_TIME_MAX          10s                    10s                             longest a function may hold a lock; 0s: no limit
	// WLLOCK_LEASE_TTL              5s                     5s                              time until the lock of a crashed process is free
	// WLLOCK_MAX_HANDOFFS           128                    128                             callers served in a row while other processes wait; 0: every caller asks the backend
	// WLLOCK_MAX_TENURE             100ms                  100ms                           the same budget in time
	// WLLOCK_LINGER                 200µs                  20ms                            how long an idle, unwanted lock is kept for the next caller; 0s: not at all; 200us: only of a key in steady use, over Redis or in memory
	// WLLOCK_WAIT                   0s                     2s                              how long a caller waits for a lock; 0s: until its context ends
	// WLLOCK_OUTAGE                 closed                 closed                          while the backend is unreachable: closed refuses, local locks within the process only
	// WLLOCK_LONGEST_TTL            0s                     10s                             for local: the longest WLLOCK_LEASE_TTL of all processes; 0s: as they have told the backend
	// WLLOCK_INSTANCE                                      web-1                           name that this process has for the backend, in logs and in errors; nothing: the host's, or the pod's
	// WLLOCK_KEY_SECRET                                    ...at least 16 bytes...         secret under which keys are hashed in errors, logs, spans and the debug page; nothing: they are shown; a file is better
	// WLLOCK_KEY_SECRET_FILE                               /run/secrets/keys               file that contains the secret
	// WLLOCK_TLS_CA                                        /etc/wllock/ca.pem              PEM file of the authorities that vouch for the backend, if the URL has no tls_ca; nothing: the system's
	// WLLOCK_TLS_CERT                                      /etc/wllock/client.pem          PEM file of a client certificate, if the URL has no tls_cert
	// WLLOCK_TLS_KEY                                       /etc/wllock/client.key          PEM file of its key, if the URL has no tls_key
	// WLLOCK_TLS_SERVER_NAME                               locks.internal                  what the backend's certificate must name, if the URL has no tls_server_name; nothing: the host
	// WLLOCK_REDIS_USERNAME                                wllock                          user name, if the URL has none
	// WLLOCK_REDIS_PASSWORD                                ...                             password, if the URL has none; a file is better, because processes inherit variables
	// WLLOCK_REDIS_PASSWORD_FILE                           /run/secrets/redis              file that contains the password
	// WLLOCK_REDIS_KEY              {system}:{name}:{key}  {name}:{key}                    Redis key of a lock, to share it with clients that are not wllock
	// WLLOCK_REDIS_INTEROP_GAP      0s                     25ms                            how long a released lock is left free for clients that are not wllock and poll; 0s: not at all
	// WLLOCK_REDIS_REPLICA_ACKS     0                      1                               replicas that acknowledge a new lease before its caller gets it; 0: none
	// WLLOCK_REDIS_ACKS_WITHIN      500ms                  500ms                           how long they may take
}
