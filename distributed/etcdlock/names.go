package etcdlock

import (
	"crypto/rand"
	"sync"
)

// names are keys of requests that can be used again. etcd keeps deleted keys in its index until they are compacted, and walks
// over them in every range: with a new key for each request a lock would become slower with every use (rule E7).
//
// A name is used again only when etcd has answered that its key is gone, and never if a create of it may still be carried out.
// So a deletion of one use cannot meet the next: it compares the create revision, or its name is not used again.
type names struct {
	mu   sync.Mutex
	free map[string][]string // guarded by mu; by what they begin with
	n    int                 // guarded by mu
}

// mostNames bounds what is kept for locks that are perhaps never used again.
const mostNames = 10_000

// take returns a name that begins so, and that nobody uses.
func (p *names) take(head string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.free[head]
	if len(free) == 0 {
		return head + rand.Text()[:idLength]
	}
	name := free[len(free)-1]
	p.n--
	if len(free) == 1 {
		delete(p.free, head)
	} else {
		p.free[head] = free[:len(free)-1]
	}
	return name
}

// put gives a name back.
func (p *names) put(name string) {
	head := name[:len(name)-idLength]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == nil {
		p.free = map[string][]string{}
	}
	p.free[head] = append(p.free[head], name)
	p.n++
	for old, free := range p.free { // any other
		if p.n <= mostNames {
			break
		}
		p.n -= len(free)
		delete(p.free, old)
	}
}
