package sale

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/example/flashsale/internal/stores"
)

// MemoryURL is that of the lock service that every program has.
const MemoryURL = "memory://"

var memory = stores.Store{
	Schemes: []string{"memory"}, Open: func(string) (distributed.Backend, error) { return memlock.New(), nil },
}

// allowed lists the URLs of -backend.
func (p Program) allowed() string {
	if p.Stores == nil {
		return MemoryURL + " (inside one process), and in go run ./example/flashsale/full those of other lock services"
	}
	all := []string{MemoryURL + " (inside one process)"}
	for _, s := range p.Stores {
		all = append(all, s.Allowed)
	}
	return strings.Join(all, ", ")
}

// store returns the one that the URL of -backend names, by its scheme alone.
func (s Settings) store() (stores.Store, error) {
	all := append(s.program.Stores, memory)
	scheme, _, ok := strings.Cut(s.Backend, "://")
	i := slices.IndexFunc(all, func(s stores.Store) bool { return ok && slices.Contains(s.Schemes, scheme) })
	if i < 0 {
		return stores.Store{}, errors.New("-backend: allowed: " + s.program.allowed()) // without the URL, which may have a password
	}
	return all[i], nil
}

// OpenBackend opens the lock service.
func (s Settings) OpenBackend() (distributed.Backend, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	return store.Open(s.Backend)
}

// PrepareBackend creates what the lock service needs, and reports whether it answers. It is called once, before any process uses it.
func (s Settings) PrepareBackend(ctx context.Context) error {
	store, err := s.store()
	if err == nil && store.Migrate != nil {
		err = store.Migrate(ctx, s.Backend)
	}
	if err != nil {
		return err
	}
	b, err := store.Open(s.Backend)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	return b.Ping(ctx)
}
