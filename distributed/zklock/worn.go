package zklock

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/wllock/wllock/internal/parts"
)

// A server counts the children that a node has ever had in 31 bits, and then gives all that come one sequence. So before that the
// key's node is worn: what is created there is not in line any more, and goes to the end of another line, in a node below it; and so on
// should that be worn, too.
//
//	/wllock/KEY            x-...-2146435070, x-...-2146435071     in line
//	                       x-...-2146435072                       worn: its process moves it below
//	/wllock/KEY/%next      x-...-0000000000, x-...-0000000001     in line, behind those of KEY
//
// Processes may disagree about the node that is in use, and two never hold the lock. A look reads the key's node, and then each node
// below that. If the count of the upper one says that it is worn, all it will ever have in line was created before that. The look of
// a request below shows them, unless they are gone, because it shows the request itself, which came later (see snapshot). A process
// that knows nothing of the next node gets a worn one in the upper, which gives nobody the lock; one that knows of it too early, because
// the key's node is a new one, finds that this is not worn, so that nothing below it is in line.
//
// A node that has children is not deleted. So the key's node, of which the next one would begin at 0, stays as long as there is a node
// below it; and the node below goes only when its line is empty. Fences are zxids, to which all of this means nothing; a look takes
// the latest change of all lines.
const (
	// mostSequences leaves a million to processes that learn of the next node one after the other.
	mostSequences = 1<<31 - 1<<20
	// nextName is no name of a request.
	nextName = "%next"
)

// worn reports that a request is not in line. Some servers count on with negative numbers.
func (s *settings) worn(n node) bool { return n.seq < 0 || int64(n.seq) >= s.sequences }

// wears reports that no more requests below a node will be in line. Its version counts the children that were created or deleted.
func (s *settings) wears(stat *zk.Stat) bool {
	return int64((uint32(stat.Cversion)+uint32(stat.NumChildren))/2) >= s.sequences
}

// line reads the children of a key's node, and of those below it that have taken its place (rule Z10). It does not say which one is ours. A
// request of another version is an error.
func (b *Backend) line(dir string, read func(dir string) (children, error)) (snapshot, error) {
	v := snapshot{i: -1}
	for at := dir; ; at += "/" + nextName {
		got, err := read(at)
		switch {
		case errors.Is(err, zk.ErrNoNode) && at != dir: // it has gone since: nobody was in line there
			return v, nil
		case err != nil:
			return v, err
		}
		for _, name := range got.names {
			if n := formatIn(name); n != 0 {
				return v, parts.OtherFormat("zklock", n, Format)
			}
		}
		q, worn := b.set.parse(strings.TrimPrefix(at+"/", dir+"/"), got.names)
		v.q, v.worn, v.zxid = append(v.q, q...), append(v.worn, worn...), max(v.zxid, got.stat.Pzxid)
		if !b.set.wears(got.stat) || !slices.Contains(got.names, nextName) {
			return v, nil
		}
	}
}

// moveOn replaces the attempt's node until it has one that is in line (rule Z10).
func (c *claim) moveOn(ctx context.Context) error {
	for {
		old := c.wornNode()
		if old == "" {
			return nil
		}
		node, next := "", path.Dir(old)+"/"+nextName
		err := c.b.makeParent(ctx, c.s, next)
		if err == nil {
			node, err = c.createIn(ctx, next, old)
		}
		switch {
		case err == nil:
			c.created(node)
			c.b.useNext(c.dir, next)
		case errors.Is(err, errPrevGone):
			return errRobbed
		case isInterruption(err):
			if err = c.refind(ctx); err != nil {
				return err
			}
		case !errors.Is(err, zk.ErrNoNode): // else the next node has gone before it was used
			return err
		}
	}
}

// refind is recover for an attempt that had a node.
func (c *claim) refind(ctx context.Context) error {
	found, err := c.recover(ctx)
	switch {
	case err != nil:
		c.createdLate("", zk.ErrConnectionClosed)
		return err
	case !found:
		return errRobbed
	}
	return nil
}

// wornNode is the path of the attempt's node if that is not in line, else "".
func (c *claim) wornNode() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := parseNode(path.Base(c.node)); ok && c.b.set.worn(n) {
		return c.dir + "/" + c.node
	}
	return ""
}

// useNext notes where requests for a key are created from now on, so that only the first of this process finds it out.
func (b *Backend) useNext(dir, next string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next[dir] = next
}

func (b *Backend) nextOf(dir string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return cmp.Or(b.next[dir], dir)
}

// forgetNext has requests begin at the key's node again, and reports whether they did not.
func (b *Backend) forgetNext(dir string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.next[dir]
	delete(b.next, dir)
	return known
}
