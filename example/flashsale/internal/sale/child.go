package sale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A child is this program again: with -procs N one of N that play a round together, on the page a shop. It lives until it is killed,
// or its standard input ends: so its parent interrupts it, and so it ends when the parent is killed. They talk in JSON:
//
//	parent  open ──▶          go ──▶                          (close, threshold ──▶)
//	child            ready ──▶       news ──▶ news ──▶ ... done ──▶
//
// All children of a round are ready before the first gets "go", so that none starts the sale alone.

const (
	childVariable = "FLASHSALE_CHILD"      // makes this program a child; it is no flag because it is not for users
	newsInterval  = 100 * time.Millisecond // between two reports
	leaveTime     = 2 * leaseTTL           // for a process to end by itself
)

// IsChild reports whether Main will be that of a child.
func IsChild() bool { return os.Getenv(childVariable) != "" }

// Order is what a child is told.
type Order struct {
	Open      *Task
	Go        bool
	Close     bool // nobody comes any more; those inside are answered
	Threshold *int
}

// Task is a child's part of a sale. It is sent over a pipe because URLs may contain passwords, and command lines are public.
type Task struct {
	Settings
	Sale   int     // its number
	System string  // the first part of every lock name
	Stalls []Stall // which sell at the same time
	Pool   int     // connections to each database
	First  int     // this child has every Stride-th instance from First on
	Stride int
	Late   time.Duration // how long the sale has been going on

	coming context.Context // its end is that of the arrivals, not of the orders
}

// Stall is a way to sell and its database.
type Stall struct{ Way, URL string }

// News is what a child reports of a sale.
type News struct {
	Sale    int
	Ready   bool
	Results []Result // of each stall, since the last news
	Away    bool     // its Locker cannot reach the lock service
	Done    bool     // the last news: all buyers of this child have been answered
	Failure string   // what kept it from selling
	Gone    bool     `json:"-"` // there is no child any more
}

// child is the child itself. The goroutine that reads orders owns crews and noMore, and opens what a sale needs before it reads on; another
// serves the buyers of that sale, with the crews that it was given.
type child struct {
	program *Program
	crews   []*crew            // of the sale that was opened last: one for each stall
	noMore  context.CancelFunc // ends the arrivals
	sales   sync.WaitGroup
	mu      sync.Mutex
	out     *json.Encoder // guarded by mu
}

// serveParent is the main program of a child.
func (p Program) serveParent(ctx context.Context, stdin io.Reader, stdout io.Writer) int {
	c := &child{program: &p, noMore: func() {}, out: json.NewEncoder(stdout)}
	ctx, cancel := context.WithCancel(ctx)
	defer c.sales.Wait()
	defer cancel()
	for in := json.NewDecoder(stdin); ; {
		var o Order
		if in.Decode(&o) != nil { // the parent has ended, or wants this process to
			return 0
		}
		if o.Threshold != nil {
			for _, one := range c.crews {
				for _, l := range one.lockers {
					_ = l.SetThreshold("product", *o.Threshold) // fails for no number that the page lets through
				}
			}
		}
		if o.Close {
			c.noMore()
		}
		if o.Open != nil {
			c.open(ctx, *o.Open)
		}
		if crews := c.crews; o.Go {
			c.sales.Go(func() { c.sell(ctx, crews) })
		}
	}
}

// say ignores errors: the parent has ended then.
func (c *child) say(n News) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(n)
}

// open prepares a sale, which begins with "go". After a failure it has no crews.
func (c *child) open(ctx context.Context, t Task) {
	var err error
	t.program, c.crews = c.program, nil
	t.coming, c.noMore = context.WithCancel(ctx)
	for _, s := range t.Stalls {
		one := &crew{Task: t, Stall: s, way: wayOf(s.Way)}
		c.crews = append(c.crews, one)
		err = errors.Join(err, one.open(ctx))
	}
	said := News{Sale: t.Sale, Ready: true}
	if err != nil {
		closeAll(c.crews)
		c.crews, said = nil, News{Sale: t.Sale, Done: true, Failure: err.Error()}
	}
	c.say(said)
}

func closeAll(crews []*crew) {
	for _, one := range crews {
		one.close()
	}
}

// sell serves the buyers of a sale, at all stalls at once, and reports until all are answered.
func (c *child) sell(ctx context.Context, crews []*crew) {
	defer closeAll(crews)
	over := make(chan struct{})
	go func() {
		defer close(over)
		var all sync.WaitGroup
		for _, one := range crews {
			all.Go(func() { _ = one.run(ctx) }) // an interruption is the parent's
		}
		all.Wait()
	}()
	for done := len(crews) == 0; !done; {
		n := News{Sale: crews[0].Sale}
		select {
		case <-time.After(newsInterval):
			n.Away = slices.ContainsFunc(crews, (*crew).away)
		case <-over:
			n.Done, done = true, true
		}
		for _, one := range crews {
			n.Results = append(n.Results, one.take())
		}
		c.say(n)
	}
}

// playTogether lets t.Stride children play a round, and merges their results. The failure of one ends all. ready is called when all are,
// and nobody has bought.
func playTogether(ctx context.Context, t Task, ready func()) (all Result, err error) {
	type heard struct {
		from int
		News
	}
	said := make(chan heard)
	var children []*Process
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for _, c := range children {
			c.End()
		}
		for _, c := range children {
			<-c.Gone
		}
	}()
	for n := range t.Stride {
		c, err := StartChild(os.Stderr, func(news News) {
			select {
			case said <- heard{n, news}:
			case <-ctx.Done():
			}
		})
		if err != nil {
			return all, err
		}
		children = append(children, c)
		t.First = n
		c.Order(Order{Open: &t})
	}
	for waiting, selling := t.Stride, t.Stride; selling > 0; {
		select {
		case news := <-said:
			switch {
			case news.Gone:
				return all, fmt.Errorf("child process %d has ended", news.from)
			case news.Failure != "":
				return all, fmt.Errorf("child process %d: %s", news.from, news.Failure)
			case news.Ready:
				if waiting--; waiting == 0 {
					ready()
					for _, c := range children {
						c.Order(Order{Go: true})
					}
				}
				continue
			case news.Done:
				selling--
			}
			all.Merge(news.Results[0])
		case <-ctx.Done():
			return all, context.Cause(ctx)
		}
	}
	return all, nil
}

// Process is a child process that somebody waits for. On Linux it ends with this process, also when that is killed.
type Process struct {
	*exec.Cmd
	End    context.CancelFunc // tells it to end; after leaveTime it is killed
	Gone   chan struct{}      // closed when it has ended
	orders *json.Encoder      // to this program as a child: see child.go
}

func newProcess(path string, args ...string) *Process {
	ctx, end := context.WithCancel(context.Background())
	p := &Process{Cmd: exec.CommandContext(ctx, path, args...), End: end, Gone: make(chan struct{})}
	p.SysProcAttr, p.WaitDelay = dieWithParent(), leaveTime
	return p
}

// start starts the process. Its goroutine listens until there is nothing more to hear.
func (p *Process) start(listen func()) (*Process, error) {
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.Gone)
		listen()
		_ = p.Wait() // how it ended does not matter: it was killed, or told to end
		p.End()
	}()
	return p, nil
}

// StartProcess starts a program that ends after SIGTERM.
func StartProcess(path string, args ...string) (*Process, error) {
	p := newProcess(path, args...)
	p.Cancel = func() error { return p.Process.Signal(syscall.SIGTERM) }
	return p.start(func() {})
}

// StartChild starts this program as a child, which ends with its input. hear gets its news, one after the other, and at last Gone.
func StartChild(stderr io.Writer, hear func(News)) (*Process, error) {
	self, err := os.Executable()
	p := newProcess(self)
	p.Env, p.Stderr = append(os.Environ(), childVariable+"=1"), stderr
	orders, noInput := p.StdinPipe()
	news, noOutput := p.StdoutPipe()
	if err := errors.Join(err, noInput, noOutput); err != nil {
		return nil, err
	}
	p.orders, p.Cancel = json.NewEncoder(orders), orders.Close
	return p.start(func() {
		for in := json.NewDecoder(news); ; {
			var n News
			if in.Decode(&n) != nil {
				break
			}
			hear(n)
		}
		_ = news.Close()
		hear(News{Gone: true})
	})
}

// Order writes to a child. It does not block: what a sale sends is far below what a pipe holds. One that does not read has ended, and is
// heard of.
func (p *Process) Order(o Order) { _ = p.orders.Encode(o) }
