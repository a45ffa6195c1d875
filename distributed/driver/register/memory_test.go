package register

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/distributed"
)

// kind is what a Store can do.
type kind string

const (
	forgets kind = "a store that forgets"
	counts  kind = "a store that keeps"
	tells   kind = "a store that numbers, tells and lists"
)

var kinds = []kind{forgets, counts, tells}

// memory is a Store in memory. It notes what becomes of each claim.
type memory struct {
	kind   kind
	reader *Backend // that only decodes

	mu      sync.Mutex    // guards all below
	changed chan struct{} // closed by a change
	version int           // the latest
	docs    map[string]kept
	fates   map[string]*fate // by the claim's id
	beats   map[string]*fate // by the session's key
	wrong   []string
}

type kept struct {
	Document
	until time.Time
}

// fate is what became of a claim.
type fate struct {
	key     string
	there   bool
	again   int  // of the claim
	copied  bool // it has gone, and a request that came late has brought it again
	ghost   bool // and it went though its process lived
	starved bool // it went when nothing had been heard of it for its period
	beat    int
	period  time.Duration // for which the beat counts
	heard   time.Time     // when the beat was written
	turn    time.Time     // when it became an owner
	session string        // that vouches for it
}

func newMemory(k kind) *memory {
	m := &memory{kind: k, changed: make(chan struct{}), docs: map[string]kept{}, fates: map[string]*fate{}, beats: map[string]*fate{}}
	m.reader = m.open(newLink(m, 1, 1, false))
	return m
}

// open returns a Backend over it.
func (m *memory) open(l *link) *Backend {
	switch m.kind {
	case forgets:
		return New("sim", l, Forgetful())
	case counts:
		return New("sim", l)
	}
	return New("sim", able{l})
}

// read returns the lock of a key.
func (m *memory) read(key string) (lock, error) { return m.reader.decode(m.get(key)) }

// used reports that a lock is held, or waited for.
func (m *memory) used(key string) bool {
	l, err := m.read(key)
	return err != nil || len(l.Owners) > 0 || len(l.Queue) > 0
}

func (m *memory) with(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *memory) get(key string) (d Document) {
	m.with(func() { d = m.doc(key) })
	return d
}

// writes returns how many there were.
func (m *memory) writes() (n int) {
	m.with(func() { n = m.version })
	return n
}

// doc returns a document that is not forgotten. The caller holds mu.
func (m *memory) doc(key string) Document {
	d := m.docs[key]
	if d.Version != "" && !time.Now().Before(d.until) {
		m.forget(key)
		return Document{}
	}
	return d.Document
}

// forget loses a document. The caller holds mu.
func (m *memory) forget(key string) {
	delete(m.docs, key)
	if strings.HasPrefix(key, sessionKeys) {
		m.noteBeat(key, Document{})
	} else {
		m.note(key, lock{})
	}
	m.wake()
}

// lose has a document vanish, as when it was evicted.
func (m *memory) lose(key string) { m.with(func() { m.forget(key) }) }

// put writes a document, or deletes it.
func (m *memory) put(key string, data []byte, from Version, keep time.Duration) (Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.doc(key).Version != from {
		return "", ErrConflict
	}
	if data == nil {
		m.forget(key)
		return "", nil
	}
	m.version++
	d := Document{slices.Clone(data), Version(strconv.Itoa(m.version))}
	m.docs[key] = kept{d, time.Now().Add(keep)}
	if strings.HasPrefix(key, sessionKeys) {
		m.noteBeat(key, d)
		m.wake()
		return d.Version, nil
	}
	l, err := m.reader.decode(d)
	if err != nil {
		m.wrong = append(m.wrong, err.Error())
	}
	m.note(key, l)
	m.wake()
	return d.Version, nil
}

// wake tells those that watch. The caller holds mu.
func (m *memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// note notes what a new document says. The caller holds mu.
func (m *memory) note(key string, l lock) {
	now := time.Now()
	for id, f := range m.fates {
		if f.key == key && f.there && !l.has(id) {
			f.there, f.starved = false, now.Sub(f.heard) >= f.period
			if s := m.beats[f.session]; s != nil {
				f.starved = !s.there && s.starved
			}
		}
	}
	for _, c := range slices.Concat(l.Owners, l.Queue) {
		f := m.fates[c.ID]
		if f == nil {
			f = &fate{key: key, heard: now, there: true, period: c.period()}
			m.fates[c.ID] = f
		}
		f.copied, f.again = f.copied || !f.there && c.Again <= f.again, max(f.again, c.Again)
		if f.ghost = f.ghost || !f.there && !f.starved; f.ghost && c.Beat > 0 {
			m.wrong = append(m.wrong, "a claim that has gone is there again, and beats")
		}
		owner := index(l.Owners, c.ID) >= 0
		if owner && f.turn.IsZero() || c.Beat != f.beat || !f.there {
			f.beat, f.period, f.heard = c.Beat, c.period(), now
		}
		f.session = c.Session
		if f.there = true; owner && f.turn.IsZero() {
			f.turn = now
		}
	}
}

// noteBeat notes what the new document of a session says. The caller holds mu.
func (m *memory) noteBeat(key string, d Document) {
	now := time.Now()
	s := m.beats[key]
	var doc beat
	_ = json.Unmarshal(d.Data, &doc)
	switch {
	case !ended(d) && s == nil:
		m.beats[key] = &fate{there: true, heard: now, period: doc.Session}
	case !ended(d) && !s.there && doc.Beat > 1: // the first may come late
		m.wrong = append(m.wrong, "a session that has ended is there again")
	case !ended(d) && s.there:
		s.heard = now
	case s.there:
		s.there, s.starved = false, now.Sub(s.heard) >= s.period
	}
}

// fate returns what became of a claim.
func (m *memory) fate(id string) fate {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.fates[id]; f != nil {
		m.doc(f.key)
		return *f
	}
	return fate{}
}

// simTTL is T of simulations.
const simTTL = 6 * time.Second

// link is a process's way to a memory.
type link struct {
	m    *memory
	late sync.WaitGroup // requests that come late

	mu     sync.Mutex // guards all below
	rnd    *rand.Rand
	faults bool
	silent time.Time     // until then nothing that it sends is answered
	trip   time.Duration // of a request or its answer, at most
	isCut  bool          // nothing arrives
	isLast bool          // others are quicker with each write
	fails  error         // of each exchange, at once; nil: none
	asked  int           // exchanges
	busy   int           // exchanges under way
	most   int           // and how many these have been
	holds  string        // writes with this text are held up
	held   func() error
}

func newLink(m *memory, seed1, seed2 uint64, faults bool) *link {
	return &link{m: m, rnd: rand.New(rand.NewPCG(seed1, seed2)), faults: faults, trip: simTTL / 500}
}

func (l *link) with(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *link) below(d time.Duration) (drawn time.Duration) {
	l.with(func() { drawn = time.Duration(l.rnd.Int64N(int64(d))) + 1 })
	return drawn
}

func (l *link) set(faults bool, silent time.Duration) {
	l.with(func() { l.faults, l.silent = faults, time.Now().Add(silent) })
}

func (l *link) cut(is bool)    { l.with(func() { l.isCut = is }) }
func (l *link) last(is bool)   { l.with(func() { l.isLast = is }) }
func (l *link) fail(err error) { l.with(func() { l.fails = err }) }

// count returns how many exchanges there were.
func (l *link) count() (n int) {
	l.with(func() { n = l.asked })
	return n
}

// hold has writes with this text held up. The latest can be delivered.
func (l *link) hold(text string) { l.with(func() { l.holds = text }) }

func (l *link) deliver() error { return l.held() }

var errSilent = distributed.Unavailable("sim", errors.New("no answer"))

// exchange carries out a request: it may be lost, come late, or twice, its answer may be lost, or the service refuses.
func (l *link) exchange(do func() error, reads bool) (err error) {
	fault := 99
	l.mu.Lock()
	l.asked++
	l.busy++
	l.most = max(l.most, l.busy)
	defer l.with(func() { l.busy-- })
	trip, fails := l.trip, l.fails
	if l.isLast && !reads {
		do = func() error { return ErrConflict }
	}
	if l.isCut {
		fault = 0
	} else if l.faults {
		if fault = l.rnd.IntN(30); time.Now().Before(l.silent) {
			fault %= 2
		}
	}
	l.mu.Unlock()
	if fails != nil {
		return fails
	}
	there, back := l.below(trip), l.below(trip)
	if (fault == 1 || fault == 2) && !reads {
		later := there + l.below(simTTL)
		l.late.Go(func() { time.Sleep(later); _ = do() })
	}
	time.Sleep(there)
	if fault > 1 && fault != 4 && fault != 5 {
		err = do()
	}
	switch fault {
	case 0, 1, 3: // lost, late, without an answer
		time.Sleep(simTTL / 20)
		return errSilent
	case 4:
		return distributed.Unavailable("sim", errors.New("refused"), distributed.ErrRefused)
	case 5:
		return distributed.Unavailable("sim", errors.New("unreached"), distributed.ErrUnreached)
	case 6:
		back += l.below(simTTL / 2)
	}
	time.Sleep(back)
	return err
}

// Get implements Store, as all below.
func (l *link) Get(_ context.Context, key string) (d Document, err error) {
	err = l.exchange(func() error { d = l.m.get(key); return nil }, true)
	if err != nil {
		d = Document{}
	}
	return d, err
}

func (l *link) Put(_ context.Context, key string, data []byte, from Version, keep time.Duration) (Version, error) {
	var written, known Version // the first of all tries, one of which may come late
	do := func() error {
		v, err := l.m.put(key, data, from, keep)
		l.with(func() { written = v })
		return err
	}
	l.with(func() {
		if l.holds != "" && strings.Contains(string(data), l.holds) {
			l.held, do = do, func() error { return errSilent }
		}
	})
	err := l.exchange(do, false)
	if err == nil {
		l.with(func() { known = written })
	}
	return known, err
}

func (l *link) Delete(_ context.Context, key string, from Version) error {
	return l.exchange(func() error { _, err := l.m.put(key, nil, from, 0); return err }, false)
}

// GetMany reads some, and others not, if it is not answered.
func (l *link) GetMany(_ context.Context, keys []string) (docs map[string]Document, err error) {
	docs = map[string]Document{}
	if err = l.exchange(func() error { return nil }, true); err != nil {
		keys = keys[:l.below(2)-1]
	}
	for _, key := range keys {
		docs[key] = l.m.get(key)
	}
	return docs, err
}

// able is a link to a memory that can do more.
type able struct{ *link }

func (able) Number(v Version) (int64, error) { return strconv.ParseInt(string(v), 10, 64) }

// Watch breaks with the network, and now and then.
func (s able) Watch(ctx context.Context, key string, changed func(Document)) error {
	for last, first := Version(""), true; ; first = false {
		s.m.mu.Lock()
		d, news := s.m.doc(key), s.m.changed
		s.m.mu.Unlock()
		if first || d.Version != last {
			if err := s.exchange(func() error { return nil }, true); err != nil {
				return err
			}
			changed(d)
			last = d.Version
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// List has one page.
func (s able) List(_ context.Context, prefix, _ string, _ int) (page []Keyed, next string, err error) {
	err = s.exchange(func() error {
		s.m.mu.Lock()
		defer s.m.mu.Unlock()
		for key := range s.m.docs {
			if strings.HasPrefix(key, prefix) {
				page = append(page, Keyed{key, s.m.doc(key)})
			}
		}
		return nil
	}, true)
	return page, "", err
}
