package memcachelock

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/keyless"
)

// store is memcached as a register.Store. One danger is left: the unique numbers begin anew in a server that is restarted between a gets
// and its cas, which may meet its like there. By then the server has forgotten all locks anyway.
type store struct{ *Backend }

var (
	_ register.Spread  = store{}
	_ register.Many    = store{}
	_ register.Deleter = store{}
)

// Server implements register.Spread.
func (s store) Server(key string) string { return s.serverOf(key) }

// Get implements register.Store.
func (s store) Get(_ context.Context, key string) (register.Document, error) {
	sent := time.Now()
	item, err := s.client.Get(itemKey(key))
	err = s.answered(sent, err)
	switch {
	case errors.Is(err, register.ErrConflict): // it is absent
		return register.Document{}, nil
	case err == nil && item.CasID == 0:
		return register.Document{}, distributed.Unavailable("memcachelock", keyless.Errorf("the server runs without cas (-C)"), distributed.ErrRefused)
	case err != nil:
		return register.Document{}, err
	}
	return document(item), nil
}

func document(item *memcache.Item) register.Document {
	return register.Document{Data: item.Value, Version: register.Version(strconv.FormatUint(item.CasID, 10))}
}

// GetMany implements register.Store.
func (s store) GetMany(_ context.Context, keys []string) (map[string]register.Document, error) {
	names, docs := make([]string, len(keys)), make(map[string]register.Document, len(keys))
	for i, key := range keys {
		names[i] = itemKey(key)
	}
	sent := time.Now()
	items, err := s.client.GetMulti(names)
	for i, name := range names {
		if item := items[name]; item != nil {
			docs[keys[i]] = document(item)
		}
	}
	return docs, s.answered(sent, err)
}

// Put implements register.Store. memcached's answer has no unique number.
func (s store) Put(_ context.Context, key string, data []byte, from register.Version, keep time.Duration) (register.Version, error) {
	return "", s.write(&memcache.Item{Key: itemKey(key), Value: data, Expiration: seconds(keep)}, from)
}

// Delete implements register.Store. An expiry in the past removes the item.
func (s store) Delete(_ context.Context, key string, from register.Version) error {
	return s.write(&memcache.Item{Key: itemKey(key), Expiration: -1}, from)
}

func (s store) write(item *memcache.Item, from register.Version) (err error) {
	sent := time.Now()
	if from == "" {
		err = s.client.Add(item)
	} else {
		item.CasID, _ = strconv.ParseUint(string(from), 10, 64) // one that document has made
		err = s.client.CompareAndSwap(item)
	}
	return s.answered(sent, err)
}

// answered tells the observers of an exchange, and returns its error as sorted does. What one server of several does not answer says nothing
// of the others, and is a reason to ask them: as a question of which nobody has waited for the answer.
func (s store) answered(sent time.Time, err error) error {
	if err != nil {
		err = sorted(err)
	}
	switch {
	case errors.Is(err, register.ErrConflict):
		s.observers.Exchanged(sent, nil)
	case err != nil && !errors.Is(err, distributed.ErrRefused) && s.count() != 1:
		s.observers.Exchanged(time.Now(), distributed.Unavailable("memcachelock", context.DeadlineExceeded))
	default:
		s.observers.Exchanged(sent, err)
	}
	return err
}

// seconds of an expiry are 2 more, since memcached's end when its timer ticks, and may be skipped.
func seconds(keep time.Duration) int32 { return int32((keep+time.Second-1)/time.Second) + 2 }

// sorted says what an error of the client's means to a caller.
func sorted(err error) error {
	var network *net.OpError
	var timeout net.Error
	kind := distributed.ErrRefused
	switch {
	case strings.Contains(err.Error(), "Too many open connections"): // the server has as many as its option -c allows
		return distributed.Unavailable("memcachelock", err, kind, register.ErrBusy)
	case errors.Is(err, memcache.ErrNotStored), errors.Is(err, memcache.ErrCASConflict), errors.Is(err, memcache.ErrCacheMiss):
		return register.ErrConflict
	case errors.As(err, new(*memcache.ConnectTimeoutError)), errors.As(err, &network) && network.Op == "dial":
		kind = distributed.ErrUnreached
	case errors.As(err, &timeout), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return distributed.Unavailable("memcachelock", err)
	}
	return distributed.Unavailable("memcachelock", err, kind)
}

const (
	maxKey = 250 // bytes, of memcached
	plain  = "wllock:"
	hashed = "wllock#"
)

// itemKey is the key of a lock's item: behind a prefix, since a cache may use the same server, the lock's own, or its hash
// where memcached allows no such key.
func itemKey(key string) string {
	refused := func(r rune) bool { return r <= ' ' || r == 0x7f }
	if len(plain+key) <= maxKey && !strings.ContainsFunc(key, refused) {
		return plain + key
	}
	return hashed + fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
}
