package zklock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
)

// Echo implements distributed.Observable. It sends a sync, which the leader answers.
func (b *Backend) Echo(ctx context.Context) error {
	sent := time.Now()
	s, ctx, cancel, err := b.session(ctx, "")
	defer cancel()
	if err == nil {
		err = s.sync(ctx)
	} else if errors.Is(err, distributed.ErrUnreached) {
		b.engine.Report(distributed.Exchange{Sent: sent, Err: err})
	}
	if errors.Is(err, distributed.ErrRefused) {
		return nil // it answers
	}
	return b.engine.OrClosed(err)
}

// ttlMemory is how long a TTL in use is remembered at least.
const ttlMemory = 5 * time.Minute

// LongestTTL implements distributed.TTLRegistry. A note is a node, whose time of change is the server's.
func (b *Backend) LongestTTL(ctx context.Context, system string, own time.Duration) (time.Duration, error) {
	s, ctx, cancel, err := b.session(ctx, "")
	defer cancel()
	if err != nil {
		return 0, err
	}
	dir := b.set.root + "/" + ttlName + "/" + escape(system)
	now, err := b.note(ctx, s, dir+"/"+strconv.FormatInt(int64(own), 10))
	if errors.Is(err, zk.ErrNoNode) {
		for _, path := range []string{b.set.root + "/" + ttlName, dir} {
			if err = b.makeNode(ctx, s, path); err != nil {
				return 0, err
			}
		}
		now, err = b.note(ctx, s, dir+"/"+strconv.FormatInt(int64(own), 10))
	}
	if err != nil {
		return 0, err
	}
	return b.longest(ctx, s, dir, own, now)
}

// note writes a note and returns the server's time.
func (b *Backend) note(ctx context.Context, s *session, path string) (int64, error) {
	return ask(ctx, s, "note TTL", func() (int64, error) {
		stat, err := s.conn.Set(path, nil, -1)
		if errors.Is(err, zk.ErrNoNode) {
			if _, err = s.conn.Create(path, nil, zk.FlagPersistent, b.set.acl); err == nil || errors.Is(err, zk.ErrNodeExists) {
				stat, err = s.conn.Set(path, nil, -1)
			}
		}
		if err != nil {
			return 0, err
		}
		return stat.Mtime, nil
	}, nil)
}

// longest reads the notes, and deletes those that are too old.
func (b *Backend) longest(ctx context.Context, s *session, dir string, own time.Duration, now int64) (time.Duration, error) {
	return ask(ctx, s, "read TTLs", func() (time.Duration, error) {
		names, _, err := s.conn.Children(dir)
		longest := own
		for _, name := range names {
			ns, _ := strconv.ParseInt(name, 10, 64)
			ttl := time.Duration(ns)
			if ttl <= longest {
				continue
			}
			there, stat, err := s.conn.Exists(dir + "/" + name)
			if err != nil {
				return 0, err
			}
			age := time.Duration(now-stat.Mtime) * time.Millisecond
			switch {
			case there && age > max(ttlMemory, 2*ttl):
				_ = s.conn.Delete(dir+"/"+name, stat.Version) // unless it was noted again
			case there:
				longest = ttl
			}
		}
		return longest, err
	}, nil)
}
