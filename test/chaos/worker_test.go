package chaos

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/dynamolock"
	"github.com/wllock/wllock/distributed/etcdlock"
	"github.com/wllock/wllock/distributed/kubelock"
	"github.com/wllock/wllock/distributed/memcachelock"
	"github.com/wllock/wllock/distributed/natslock"
	"github.com/wllock/wllock/distributed/redislock"
	"github.com/wllock/wllock/distributed/redlock"
	"github.com/wllock/wllock/distributed/s3lock"
	"github.com/wllock/wllock/distributed/sqllock/mysql"
	"github.com/wllock/wllock/distributed/sqllock/postgres"
	"github.com/wllock/wllock/distributed/sqllock/sqlite"
	"github.com/wllock/wllock/distributed/zklock"
	"github.com/wllock/wllock/test/history"
)

const workerCallers = 6

// task is what a worker is told to do.
type task struct {
	Name, URL string
	Ways      map[string]string // addresses of Redis servers, and of the proxies through which the process reaches them
	Data      string            // address of the Redis with the accounts
	Store     history.Store
	Seed      uint64
	Accounts  int
	Permits   bool // there is one more key, with permits
	LocalOnly bool
	TTL       time.Duration
	Thinks    time.Duration // between two calls of a caller, on average
}

// open opens the lock service.
func (t task) open() (distributed.Observable, error) {
	scheme, rest, _ := strings.Cut(t.URL, "://")
	switch {
	case strings.HasPrefix(scheme, "redis"):
		hosts, primary, _ := strings.Cut(rest, "/")
		return redislock.New(redis.NewUniversalClient(&redis.UniversalOptions{
			Addrs: strings.Split(hosts, ","), MasterName: primary, IsClusterMode: scheme == "redis+cluster", Dialer: t.dial,
		}))
	case scheme == "redlock":
		return redlock.Open(t.URL)
	case scheme == "postgres":
		return postgres.Open(t.URL)
	case scheme == "mysql":
		return mysql.Open(t.URL)
	case scheme == "etcd":
		return etcdlock.Open(t.URL)
	case scheme == "zk":
		return zklock.Open(t.URL)
	case scheme == "nats":
		return natslock.Open(t.URL)
	case scheme == "kubernetes":
		return kubelock.Open(t.URL)
	case scheme == "s3":
		return s3lock.Open(t.URL)
	case scheme == "dynamodb":
		return dynamolock.Open(t.URL)
	case scheme == "memcached":
		return memcachelock.Open(t.URL)
	}
	return sqlite.Open(t.URL)
}

// dial has clients that hear of a server's own address reach it through the proxy all the same.
func (t task) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, cmp.Or(t.Ways[addr], addr))
}

// settings of processes, which differ.
var settings = [][]wllock.Option{
	{}, {wllock.WithMaxHandoffs(0)}, {wllock.WithMaxHandoffs(3), wllock.WithLinger(time.Millisecond)}, {wllock.WithMaxTenure(2 * time.Millisecond)},
}

// worker is a process that adds to accounts under locks, again and again, until its input ends.
type worker struct {
	task
	journal *history.Journal
	locker  *wllock.Locker
	data    *redis.Client
	dwells  atomic.Bool   // the next exclusive holder stays between its read and its write
	goOn    chan struct{} // until this says so
}

func (w *worker) run() error {
	backend, err := w.open()
	if err != nil {
		return err
	}
	w.journal, w.goOn = history.NewJournal(os.Stdout, w.Name), make(chan struct{})
	opts := append(settings[w.Seed%uint64(len(settings))], wllock.WithOwnedBackend(), wllock.WithLeaseTTL(w.TTL))
	if w.LocalOnly {
		opts = append(opts, wllock.WithOutage(wllock.LocalOnly))
	}
	if w.locker, err = wllock.New(system, w.journal.Places(backend), opts...); err != nil {
		return err
	}
	w.data = redis.NewClient(&redis.Options{Addr: w.Data, MaxRetries: -1}) // a write that is sent twice is two
	ctx, cancel := context.WithCancel(context.Background())
	go w.obey(cancel)
	go w.journal.Watch(ctx)
	var all sync.WaitGroup
	for i := range workerCallers {
		rnd := rand.New(rand.NewPCG(w.Seed, uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil {
				w.call(ctx, rnd, fmt.Sprint(i))
				time.Sleep(time.Duration(rnd.Int64N(int64(2*w.Thinks) + 1)))
			}
		})
	}
	all.Wait()
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return w.locker.Close(closing)
}

// obey reads what the process is told.
func (w *worker) obey(end func()) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "dwell":
			w.dwells.Store(true)
		case "go on":
			w.goOn <- struct{}{}
		}
	}
	end()
	close(w.goOn)
}

// Names of the locks.
const system, name = "bank", "account"

// call is one call, for an account as a writer or a reader, or for a permit. Some do not wait for long.
func (w *worker) call(ctx context.Context, rnd *rand.Rand, caller string) {
	keys := w.Accounts
	if w.Permits {
		keys++
	}
	n := rnd.IntN(keys)
	r := history.Request{Caller: caller, Key: fmt.Sprint(n)}
	var opts []wllock.CallOption
	switch permits := n == w.Accounts; {
	case permits && rnd.IntN(8) > 0:
		r.Permits, opts = 3, append(opts, wllock.Permits(3))
	case !permits && rnd.IntN(4) == 0:
		r.Shared, opts = true, append(opts, wllock.Shared())
	}
	wait := 5 * time.Second
	switch rnd.IntN(8) {
	case 0:
		wait = time.Duration(1 + rnd.Int64N(int64(w.TTL/4)))
	case 1:
		r.NoWait, opts = true, append(opts, wllock.NoWait())
	}
	deadline := time.Now().Add(wait)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	switch rnd.IntN(16) {
	case 0:
		opts = append(opts, wllock.SyncRelease())
	case 1:
		defer time.AfterFunc(time.Duration(rnd.IntN(1_000))*time.Microsecond, cancel).Stop()
	}
	r.Deadline = history.Clock(deadline)
	e, stay := w.journal.Ask(r), time.Duration(rnd.IntN(2_000))*time.Microsecond
	e.Back(w.locker.Do(ctx, name, r.Key, func(ctx context.Context) error {
		held, _ := wllock.HeldFrom(ctx)
		e.Held(held)
		defer e.Leave(held)
		if n == w.Accounts {
			time.Sleep(stay)
			return nil
		}
		return w.count(e, r, held, stay)
	}, opts...))
}

// count reads the number of the key, thinks, and writes the next. It is slow to look at its lease.
func (w *worker) count(e history.Entry, r history.Request, held *wllock.Held, stay time.Duration) error {
	read, write := readBlind, writeBlind
	if w.Store == history.Compares && !r.Shared {
		read, write = readFenced, writeFenced
	}
	key, fence := []string{"data " + r.Key}, fmt.Sprintf("%020d", held.Fence())
	e.Note(history.Event{What: history.Read})
	value, err := read.Run(context.Background(), w.data, key, fence).Int64()
	if err != nil {
		return w.refused(e, err)
	}
	e.Note(history.Event{What: history.Got, Was: value})
	if r.Shared {
		time.Sleep(stay)
		return nil
	}
	if w.dwells.CompareAndSwap(true, false) {
		e.Held(held)
		<-w.goOn
		e.Held(held) // it was stopped meanwhile
	}
	time.Sleep(stay)
	e.Note(history.Event{What: history.Write, Was: value, New: value + 1})
	if err := write.Run(context.Background(), w.data, key, fence, value+1).Err(); err != nil {
		return w.refused(e, err)
	}
	e.Note(history.Event{What: history.Wrote})
	return nil
}

func (w *worker) refused(e history.Entry, err error) error {
	if errors.Is(err, redis.Nil) {
		e.Note(history.Event{What: history.Refused})
	}
	return err
}

// What the stores do. Fences have equal lengths, so that they compare as texts. A Lua number is too small for them.
var (
	readFenced = redis.NewScript(`
		if (redis.call('HGET', KEYS[1], 'fence') or '') > ARGV[1] then return nil end
		redis.call('HSET', KEYS[1], 'fence', ARGV[1])
		return redis.call('HGET', KEYS[1], 'value') or 0`)
	writeFenced = redis.NewScript(`
		if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return nil end
		return redis.call('HSET', KEYS[1], 'value', ARGV[2])`)
	readBlind  = redis.NewScript(`return redis.call('HGET', KEYS[1], 'value') or 0`)
	writeBlind = redis.NewScript(`return redis.call('HSET', KEYS[1], 'value', ARGV[2])`)
)
