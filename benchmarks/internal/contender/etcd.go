package contender

import (
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

const etcdModule = "go.etcd.io/etcd/client/v3"

func etcds() []Contender {
	return append(longer(ours("wllock", defaults, requests, overEtcd), overEtcd), Contender{
		Name:     "Mutex",
		Settings: "concurrency.Mutex, one client per instance and a session for every holder or waiter, as callers of one session do not exclude each other",
		Module:   etcdModule,
		Commands: requests,
		Open:     openEtcdMutex,
		Role:     Rival,
	}, Contender{
		Name:     "Put",
		Settings: "one put per call; no lock",
		Module:   etcdModule,
		Commands: requests,
		Open: func(o Options) (Instance, error) {
			c, err := openEtcd(o)
			return etcdPut{c}, err
		},
		Role: Limit,
	})
}

func openEtcd(o Options) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{o.Addr}, Logger: zap.NewNop()})
}

type etcdMutex struct {
	client   *clientv3.Client
	sessions chan *concurrency.Session // that nobody uses
}

func openEtcdMutex(o Options) (Instance, error) {
	client, err := openEtcd(o)
	if err != nil {
		return nil, err
	}
	m := &etcdMutex{client, make(chan *concurrency.Session, o.Workers)}
	errs := make([]error, o.Workers)
	var all sync.WaitGroup
	for i := range o.Workers {
		all.Go(func() {
			s, err := concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
			if errs[i] = err; err == nil {
				m.sessions <- s
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *etcdMutex) Do(ctx context.Context, key string, f func(context.Context) error) error {
	s := <-m.sessions // there is one for every caller
	defer func() { m.sessions <- s }()
	lock := concurrency.NewMutex(s, "/mutex/"+key)
	if err := lock.Lock(ctx); err != nil {
		return err
	}
	return errors.Join(f(ctx), lock.Unlock(cleanUp))
}

func (m *etcdMutex) Close() error {
	close(m.sessions)
	var errs []error
	for s := range m.sessions {
		errs = append(errs, s.Close())
	}
	return errors.Join(errors.Join(errs...), m.client.Close())
}

type etcdPut struct{ client *clientv3.Client }

func (p etcdPut) Do(ctx context.Context, key string, f func(context.Context) error) error {
	if _, err := p.client.Put(ctx, "/put/"+key, ""); err != nil {
		return err
	}
	return f(ctx)
}

func (p etcdPut) Close() error { return p.client.Close() }
