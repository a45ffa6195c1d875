package zklock

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver"
	"github.com/wllock/wllock/internal/parts"
)

// node is one request for a lock: a child of the key's node, whose name tells all that others need to know.
//
//	x-<instance>-<id>-<sequence>      x: exclusive, s: shared
//
// The id is random, so that a node is found again whose create was carried out but never answered (the protected mode of
// Apache Curator). The sequence is the server's. Nodes of detached leases have other ids (rule Z11).
type node struct {
	driver.Asked
	name string // its path below the key's node
	tag  string // stands for the instance
	id   string
	seq  int32
}

const (
	idLength = 16 // of rand.Text: 80 bits
	// headLength is the length of a name before its sequence, which can have a sign.
	headLength = 2 + parts.TagLength + 1 + idLength + 1
)

// head is the beginning of a node's name, to which the server appends the sequence.
func head(mode distributed.Mode, tag, id string) string {
	letter := "x"
	if mode == distributed.Shared {
		letter = "s"
	}
	return letter + "-" + tag + "-" + id + "-"
}

// formatIn is the format in the name of a request of another version, "x2-..." or "s2-..."; 0: it is none.
func formatIn(name string) int {
	if name == "" || name[0] != 'x' && name[0] != 's' {
		return 0
	}
	digits, _, cut := strings.Cut(name[1:], "-")
	n, err := strconv.Atoi(digits)
	if !cut || err != nil {
		return 0
	}
	return n
}

func parseNode(name string) (node, bool) {
	if len(name) <= headLength || name[1] != '-' || name[0] != 'x' && name[0] != 's' ||
		name[2+parts.TagLength] != '-' || name[headLength-1] != '-' {
		return node{}, false
	}
	seq, err := strconv.ParseInt(name[headLength:], 10, 32)
	n := node{
		Asked: driver.Asked{Shared: name[0] == 's'}, name: name, tag: name[2 : 2+parts.TagLength], id: name[3+parts.TagLength : headLength-1], seq: int32(seq),
	}
	if n.Shared {
		n.Limit = limitIn(n.id)
	}
	return n, err == nil
}

// queue is who holds a lock and who waits for it, in the order of their requests.
type queue []node

// parse makes a queue from the children of a node, which stands at this path below the key's node (with a slash at its end, if it is
// not that itself). Worn ones are apart, and children that are not ours are ignored.
func (s *settings) parse(below string, children []string) (q, worn queue) {
	q = make(queue, 0, len(children))
	for _, name := range children {
		n, ok := parseNode(name)
		n.name = below + name
		switch {
		case ok && s.worn(n):
			worn = append(worn, n)
		case ok:
			q = append(q, n)
		}
	}
	slices.SortFunc(q, func(a, b node) int { return cmp.Compare(a.seq, b.seq) })
	return q, worn
}

// find returns the place of the node with this id, or -1.
func (q queue) find(id string) int {
	return slices.IndexFunc(q, func(n node) bool { return n.id == id })
}

// without returns the queue without the node of this name.
func (q queue) without(name string) queue {
	return slices.DeleteFunc(slices.Clone(q), func(n node) bool { return n.name == name })
}

// before returns the node that the one at i waits for, which is the one before it, or for a shared one the last exclusive one
// before it; ok is false if there is none. So a release wakes one waiter, or one run of readers (rule Z2).
func (q queue) before(i int, shared bool) (n node, ok bool) {
	for i--; i >= 0; i-- {
		if !shared || !q[i].Shared {
			return q[i], true
		}
	}
	return node{}, false
}

// waiter returns the first of another instance that waits for what the holder at i has; ok is false if there is none. Others may hold
// the lock beside a shared one; and then the first was downgraded if it is a writer.
func (q queue) waiter(i int, shared bool) (n node, ok bool) {
	rest := q[max(driver.Admitted(q, shared), i+1):]
	j := slices.IndexFunc(rest, func(n node) bool { return n.tag != q[i].tag })
	if j < 0 {
		return node{}, false
	}
	return rest[j], true
}
