package simulated

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
)

// documents is a store of documents in memory, which forgets each when its time has passed. The flaws are mistakes that the judge must find.
type documents struct {
	flaw string

	mu      sync.Mutex // guards all below
	version int
	all     map[string]document
}

type document struct {
	register.Document
	until time.Time
}

// get returns a document that is not forgotten. The caller holds mu.
func (s *documents) get(key string) register.Document {
	d := s.all[key]
	if d.Version != "" && !time.Now().Before(d.until) {
		delete(s.all, key)
		return register.Document{}
	}
	return d.Document
}

// put writes a document, or deletes it if data is nil.
func (s *documents) put(key string, data []byte, from register.Version, keep time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch differs := s.get(key).Version != from; {
	case !differs:
	case s.flaw == flawPutCompares && data != nil, s.flaw == flawDeleteCompares && data == nil:
	case s.flaw == flawConflict:
		return nil
	default:
		return register.ErrConflict
	}
	if data == nil {
		delete(s.all, key)
		return nil
	}
	if s.flaw == flawForgets {
		keep /= 8
	}
	s.version++
	s.all[key] = document{register.Document{Data: slices.Clone(data), Version: register.Version(strconv.Itoa(s.version))}, time.Now().Add(keep)}
	return nil
}

// left returns a key that is not forgotten.
func (s *documents) left() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.all {
		if s.get(key).Version != "" {
			return key
		}
	}
	return ""
}

// link is a process's way to the documents.
type link struct {
	*network
	s *documents
}

var _ register.Store = link{}

// exchange sends a request that ends by itself, so ctx may not end it.
func (l link) exchange(kind string, do func(once bool) error) error {
	return l.network.exchange(context.Background(), kind, func(once bool) error {
		err := do(once)
		if once && errors.Is(err, register.ErrConflict) {
			l.seen.note(kind + ": conflict")
		}
		return err
	})
}

// Get implements register.Store, as all below.
func (l link) Get(_ context.Context, key string) (found register.Document, err error) {
	err = l.exchange("get", func(once bool) error {
		if once {
			l.s.mu.Lock()
			defer l.s.mu.Unlock()
			found = l.s.get(key)
		}
		return nil
	})
	if err != nil {
		return register.Document{}, err
	}
	return found, nil
}

// GetMany implements register.Store.
func (l link) GetMany(_ context.Context, keys []string) (map[string]register.Document, error) {
	found := map[string]register.Document{}
	err := l.exchange("get many", func(once bool) error {
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		for _, key := range keys {
			if once {
				found[key] = l.s.get(key)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Put implements register.Store.
func (l link) Put(_ context.Context, key string, data []byte, from register.Version, keep time.Duration) (register.Version, error) {
	return "", l.exchange("put", func(bool) error { return l.s.put(key, data, from, keep) })
}

// Delete implements register.Store.
func (l link) Delete(_ context.Context, key string, from register.Version) error {
	return l.exchange("delete", func(bool) error { return l.s.put(key, nil, from, 0) })
}

// documentsView is the register of one process.
type documentsView struct {
	*register.Backend
	link
}

var (
	_ distributed.Observable = documentsView{}
	_ distributed.Transferer = documentsView{}
)

func newDocumentsView(s *documents, n *network) documentsView {
	l := link{n, s}
	return documentsView{register.New("simulated", l, register.Forgetful()), l}
}

// Observe implements distributed.Observable: the network knows what its faults are.
func (v documentsView) Observe(f func(distributed.Exchange)) (stop func()) {
	return v.network.Observe(f)
}

// Echo implements distributed.Observable.
func (v documentsView) Echo(ctx context.Context) error {
	return v.network.exchange(ctx, "echo", func(bool) error { return nil })
}
