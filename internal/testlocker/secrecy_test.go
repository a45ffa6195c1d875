package testlocker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

// A part of a key is found in each of its forms, so that the test of secrecy can fail.
func TestSecrecyFindsParts(t *testing.T) {
	for _, key := range secrets() {
		parts := partsOf(key)
		for _, form := range formsOf(key) {
			if partIn("no row "+form+", sorry", parts) == "" {
				t.Errorf("%q is not found", form)
			}
		}
		if part := partIn("wllock: acquire: lock backend unavailable: 2000-01-01T00:00:00.123456789Z", parts); part != "" {
			t.Errorf("%q is found where it is not", part)
		}
	}
}

// No part of a key leaves the process, in whatever way a call ends.
func TestNoKeyLeavesWithRedaction(t *testing.T) {
	synctest.Test(t, noKeyLeaves)
}

func noKeyLeaves(t *testing.T) {
	b := &telling{Backend: memlock.New()}
	Secrecy{
		System: "shop", TTL: TTL, Open: func(*testing.T, *slog.Logger) distributed.Backend { return b },
		Hinders: map[string]func(*testing.T) func(){
			"a partition": func(*testing.T) func() { b.Partition(true); return func() { b.Partition(false) } },
			"an outage": func(*testing.T) func() {
				b.Partition(true)
				time.Sleep(TTL + TTL/2)
				return func() { b.Partition(false) }
			},
			"a service that names the row": func(*testing.T) func() { b.tells.Store(true); return func() { b.tells.Store(false) } },
		},
	}.Run(t)
}

// telling is a backend whose errors have the key in all forms, and in a path. Its Lockers do not close it.
type telling struct {
	*memlock.Backend
	tells atomic.Bool
}

func (*telling) Close() error { return nil }

func (b *telling) about(key string) error {
	if !b.tells.Load() {
		return nil
	}
	said := formsOf(key)
	if parts := strings.SplitN(key, ":", 3); len(parts) == 3 {
		said = append(said, formsOf(parts[2])...)
	}
	for _, form := range said {
		said = append(said, "/locks/"+form+"/lock-0001", form+":queue", "lock_"+form)
	}
	return fmt.Errorf("%s: %w", key, distributed.Unavailable("insert", errors.New(strings.Join(said, "\n")), distributed.ErrRefused))
}

func (b *telling) Enter(ctx context.Context, req distributed.Request) (distributed.Lease, distributed.Place, error) {
	if err := b.about(req.Key); err != nil {
		return nil, nil, err
	}
	return b.Backend.Enter(ctx, req)
}

func (b *telling) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	if err := b.about(key); err != nil {
		return distributed.Inspection{}, err
	}
	return b.Backend.Inspect(ctx, key)
}

func (b *telling) Ping(ctx context.Context) error {
	return cmp.Or(b.about(secrets()[1]), b.Backend.Ping(ctx))
}

func (b *telling) Probe(ctx context.Context, p distributed.Probe) error { return b.Ping(ctx) }
