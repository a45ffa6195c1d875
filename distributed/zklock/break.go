package zklock

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/parts"
)

// brokenName is the node whose children remember each Break, by the names of keys.
const brokenName = "%broken"

// sweptBreaks bounds how many old records a Break deletes.
const sweptBreaks = 16

// brokenPath is where a record is kept. When it was made and the fence are those of its node.
func (b *Backend) brokenPath(key string) string {
	return b.set.root + "/" + brokenName + "/" + escape(key)
}

// Break implements distributed.Inspector. One transaction deletes the holders' nodes and writes the record. It wakes the next in line as a
// release does, and the fences of that one are those of this change or later (rules Z6 and Z8). If the first in line is younger than all that
// were found, they have gone. A holder that others wait for notices at its next look, within a third of its session's timeout.
func (b *Backend) Break(ctx context.Context, found distributed.Inspection, by, reason string) (distributed.Breaking, error) {
	record, youngest, err := parts.CheckBreak("zklock", found, by, reason)
	if err != nil {
		return record, err
	}
	s, ctx, cancel, err := b.session(ctx, "")
	defer cancel()
	if err != nil {
		return record, err
	}
	q, _, err := b.queueOf(ctx, s, found.Key)
	if err != nil {
		return record, b.engine.OrClosed(err)
	}
	first, err := b.facts(ctx, s, found.Key, q[:min(1, len(q))])
	if err != nil || len(first) == 0 || first[0].created > youngest {
		return record, orNotHeld(b.engine.OrClosed(err))
	}
	stat, err := b.deleteAll(ctx, s, found.Key, q[:holdersOf(q, first[0])], record)
	if err != nil {
		return record, orNotHeld(b.engine.OrClosed(err))
	}
	b.sweepBroken(ctx, s)
	record.At, record.Fence = time.UnixMilli(stat.Mtime), fences.Last(stat.Mzxid-1)
	b.set.log.Warn("zklock: a lease was ended by force", "holder", record.Holder, "by", by, "fence", record.Fence)
	return record, nil
}

// orNotHeld is the error of a Break whose holders have gone meanwhile.
func orNotHeld(err error) error {
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		return keyless.Errorf("zklock: break: %w", distributed.ErrNotHeld)
	}
	return err
}

// deleteAll deletes nodes and writes the record, or does neither. If one of the nodes has gone the answer is zk.ErrNoNode.
func (b *Backend) deleteAll(ctx context.Context, s *session, key string, nodes []node, record distributed.Breaking) (*zk.Stat, error) {
	text, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	for _, path := range []string{b.set.root + "/" + brokenName, b.brokenPath(key)} {
		if err := b.makeNode(ctx, s, path); err != nil {
			return nil, err
		}
	}
	ops := []any{&zk.SetDataRequest{Path: b.brokenPath(key), Data: text, Version: -1}}
	for _, n := range nodes {
		ops = append(ops, &zk.DeleteRequest{Path: b.dirOf(key) + "/" + n.name, Version: -1})
	}
	return ask(ctx, s, "break", func() (*zk.Stat, error) {
		answers, err := s.conn.Multi(ops...)
		if err != nil {
			return nil, err
		}
		return answers[0].Stat, nil
	}, nil)
}

// brokenOf returns the record of a key; nil if there is none, or it is too old.
func (b *Backend) brokenOf(ctx context.Context, s *session, key string) (*distributed.Breaking, error) {
	record, err := ask(ctx, s, "inspect", func() (*distributed.Breaking, error) {
		data, stat, err := s.conn.Get(b.brokenPath(key))
		var record distributed.Breaking
		if err != nil || json.Unmarshal(data, &record) != nil { // a node without a record: its Break has failed
			return nil, err
		}
		record.At, record.Fence = time.UnixMilli(stat.Mtime), fences.Last(stat.Mzxid-1)
		return &record, nil
	}, nil)
	if errors.Is(err, zk.ErrNoNode) || err == nil && record != nil && time.Since(record.At) > distributed.BrokenMemory {
		return nil, nil
	}
	return record, err
}

// sweepBroken deletes some of the records that are too old. What it misses the next Break finds.
func (b *Backend) sweepBroken(ctx context.Context, s *session) {
	dir := b.set.root + "/" + brokenName
	names, err := ask(ctx, s, "list", func() ([]string, error) {
		names, _, err := s.conn.Children(dir)
		return names, err
	}, nil)
	for i := 0; i < min(len(names), sweptBreaks) && err == nil; i++ {
		_, err = ask(ctx, s, "sweep", func() (struct{}, error) {
			there, stat, err := s.conn.Exists(dir + "/" + names[i])
			if there && err == nil && time.Since(time.UnixMilli(stat.Mtime)) > distributed.BrokenMemory {
				err = s.conn.Delete(dir+"/"+names[i], stat.Version)
			}
			return struct{}{}, err
		}, nil)
	}
}
