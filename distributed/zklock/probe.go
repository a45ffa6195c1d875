package zklock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/deadline"
	"github.com/wllock/wllock/internal/keyless"
)

// pingBudget bounds a Ping whose context has no end.
const pingBudget = 5 * time.Second

// Ping implements distributed.Backend. It creates a node and deletes it again, in one transaction. So it succeeds only if the ensemble has its
// quorum and the user has the rights. The error names what is missing.
func (b *Backend) Ping(ctx context.Context) error {
	s, ctx, cancel, err := b.session(ctx, "")
	defer cancel()
	if err != nil {
		return err
	}
	return b.engine.OrClosed(b.probeWith(ctx, s))
}

// session returns a session of a kind for a question, and a context that ends within the budget.
func (b *Backend) session(ctx context.Context, kind string) (*session, context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(ctx, pingBudget)
	if b.engine.Closed() {
		return nil, ctx, cancel, distributed.ErrClosed
	}
	s, err := b.any(ctx, kind)
	return s, ctx, cancel, b.engine.OrClosed(err)
}

// probe makes sure that there is a root, and tries what a lock takes. It is the first use of a session.
func (b *Backend) probe(s *session) error { return b.probeWith(s.Ctx, s) }

func (b *Backend) probeWith(ctx context.Context, s *session) error {
	path := b.set.root + "/" + probeName + rand.Text()[:idLength]
	_, err := ask(ctx, s, "probe", func() (struct{}, error) {
		_, err := s.conn.Multi(&zk.CreateRequest{Path: path, Acl: b.set.acl, Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: path, Version: -1})
		return struct{}{}, err
	}, nil)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		if err = b.makeRoot(ctx, s); err == nil {
			return b.probeWith(ctx, s)
		}
	case errors.Is(err, zk.ErrNoAuth):
		err = keyless.Errorf("zklock: the user lacks the rights to create and delete nodes in %q (ACL cd, and for the locks rw): %w",
			b.rootPath(), err)
	}
	return err
}

// makeRoot creates the root and what is above it.
func (b *Backend) makeRoot(ctx context.Context, s *session) error {
	for i := range b.set.root {
		if i > 0 && b.set.root[i] == '/' {
			if err := b.makeNode(ctx, s, b.set.root[:i]); err != nil {
				return err
			}
		}
	}
	return b.makeNode(ctx, s, b.set.root)
}

func (b *Backend) makeNode(ctx context.Context, s *session, path string) error {
	_, err := ask(ctx, s, "create "+path, func() (string, error) {
		return s.conn.Create(path, nil, zk.FlagPersistent, b.set.acl)
	}, nil)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoAuth): // perhaps it exists, and what is above it is somebody else's
		there, lookErr := ask(ctx, s, "exists", func() (bool, error) {
			there, _, err := s.conn.Exists(path)
			return there, err
		}, nil)
		if there && lookErr == nil {
			return nil
		}
	}
	return err
}

// makeParent creates the node of a key. We delete it a while later if it has no children then; else, or should we be gone, the server does,
// as it is a container. But that deletes 167 per second at most, by default. Servers before 3.5 have no containers: then we try again
// until it is gone. Either is safe: a node with children is never deleted, and a request that finds it missing creates it again (rule Z7).
func (b *Backend) makeParent(ctx context.Context, s *session, dir string) error {
	plain := b.plain.Load() || b.set.persist
	_, err := ask(ctx, s, "create parent", func() (string, error) {
		if plain {
			return s.conn.Create(dir, nil, zk.FlagPersistent, b.set.acl)
		}
		return s.conn.CreateContainer(dir, nil, zk.FlagContainer, b.set.acl)
	}, nil)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return b.makeRoot(ctx, s)
	case err != nil && strings.Contains(err.Error(), unimplemented):
		b.plain.Store(true)
		return b.makeParent(ctx, s, dir)
	case err == nil:
		b.sweepLater(&parent{dir: dir, container: !plain})
	}
	return err
}

// unimplemented is what the library makes of the protocol's code for a request that a server does not know.
const unimplemented = "unknown error: -6"

// parent is a node to be deleted when it has no children.
type parent struct {
	item      deadline.Item[*parent]
	dir       string
	container bool // the server will delete it if we do not
}

// sweepPause is how long a parent is kept, as long as a server keeps a container by default.
const sweepPause = time.Minute

func (b *Backend) sweepLater(p *parent) {
	p.item.Owner = p
	b.parents.Put(&p.item, time.Now().Add(cmp.Or(b.set.sweepPause, sweepPause)))
}

// sweep deletes several at a time: each deletion takes an answer of a majority.
func (b *Backend) sweep(_ time.Time, due []*parent) {
	going := make(chan struct{}, maxRemoving)
	var all sync.WaitGroup
	for _, p := range due {
		going <- struct{}{}
		all.Go(func() {
			b.sweepOne(p)
			<-going
		})
	}
	all.Wait()
}

func (b *Backend) sweepOne(p *parent) {
	s, ctx, cancel, err := b.session(context.Background(), "")
	defer cancel()
	if err == nil {
		_, err = ask(ctx, s, "delete parent", func() (struct{}, error) { return struct{}{}, s.conn.Delete(p.dir, -1) }, nil)
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) && !p.container {
		b.sweepLater(p) // somebody uses it
	}
}
