package contender

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// requests is what is counted of ZooKeeper: all that clients send.
var requests = []string{"request"}

const zkModule = "github.com/go-zookeeper/zk"

func zookeepers() []Contender {
	all := ours("wllock", defaults, requests, overZooKeeper)
	return append(all, Contender{
		Name:     "zk.Lock",
		Settings: "NewLock for each call, one connection per instance; knows no readers and no context",
		Module:   zkModule,
		Commands: requests,
		Open:     onConnection(func(c *zk.Conn) Instance { return zkLock{c} }),
		Role:     Rival,
	}, Contender{
		Name:     "exists",
		Settings: "one request per call, which the server answers from memory; no lock",
		Module:   zkModule,
		Commands: requests,
		Open:     onConnection(func(c *zk.Conn) Instance { return zkExists{c} }),
		Role:     Limit,
	})
}

// onConnection returns an Open that makes a session with the TTL of all contenders.
func onConnection(instance func(*zk.Conn) Instance) func(Options) (Instance, error) {
	return func(o Options) (Instance, error) {
		conn, _, err := zk.Connect([]string{o.Addr}, ttl, zk.WithLogInfo(false))
		if err != nil {
			return nil, err
		}
		return instance(conn), nil
	}
}

type zkLock struct{ conn *zk.Conn }

// Do waits until it has the lock, also beyond the end of ctx: the library has no other way. All callers leave at the end of a
// round, so the wait is short.
func (l zkLock) Do(ctx context.Context, key string, f func(context.Context) error) error {
	lock := zk.NewLock(l.conn, "/zk-lock/"+key, zk.WorldACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		return err
	}
	return errors.Join(f(ctx), lock.Unlock())
}

func (l zkLock) Close() error {
	l.conn.Close()
	return nil
}

type zkExists struct{ conn *zk.Conn }

func (e zkExists) Do(ctx context.Context, _ string, f func(context.Context) error) error {
	if _, _, err := e.conn.Exists("/"); err != nil {
		return err
	}
	return f(ctx)
}

func (e zkExists) Close() error {
	e.conn.Close()
	return nil
}
