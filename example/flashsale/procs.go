package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// With -procs N each round runs in N child processes of this program. Parent and child talk in JSON over the child's
// standard input and output:
//
//	parent  task ──▶                    go ──▶
//	child            ready ──▶                  progress ──▶ ... result ──▶
//
// All children are ready before the first gets "go", so that none starts the sale alone. The end of its input ends a child:
// so its parent interrupts it, and so it ends when the parent is killed.

// childVariable makes this program a child. It is a variable and not a flag because it is not for users.
const childVariable = "FLASHSALE_CHILD"

// task is the work of a child. It is sent over a pipe because the URL may contain a password and command lines are public.
type task struct {
	Settings settings `json:"settings"`
	Backend  string   `json:"backend"`
	System   string   `json:"system"`
	Database string   `json:"database"` // a file; "": DB
	DB       string   `json:"db"`       // its URL
	Pool     int      `json:"pool"`     // connections to DB
	Round    int      `json:"round"`    // of rounds; of modes for DB
	Proc     int      `json:"proc"`
}

// message is a message of a child.
type message struct {
	Ready    bool    `json:"ready,omitempty"`
	Answered int64   `json:"answered,omitempty"` // progress: the totals so far
	Bought   int64   `json:"bought,omitempty"`
	Result   *result `json:"result,omitempty"`
	Failure  string  `json:"failure,omitempty"`
}

// runProcs lets children run their parts of the task, and merges their results.
func runProcs(ctx context.Context, t task, m *meter) (result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // before the wait for the children, so that an error here ends them all
	var children []*child
	for t.Proc = range t.Settings.Procs {
		c, err := startChild(ctx, t)
		if err != nil {
			cancel()
			return result{}, errors.Join(err, waitAll(children))
		}
		children = append(children, c)
	}
	all, err := sellTogether(children, m)
	if err != nil {
		cancel()
	}
	return all, errors.Join(err, waitAll(children))
}

// sellTogether starts the children when all are ready, and collects their results.
func sellTogether(children []*child, m *meter) (result, error) {
	for _, c := range children {
		if said, err := c.hear(); err != nil || !said.Ready {
			return result{}, fmt.Errorf("child process %d did not get ready: %w", c.proc, err)
		}
	}
	m.start()
	for _, c := range children {
		if err := c.in.Encode("go"); err != nil {
			return result{}, err
		}
	}
	var (
		mu   sync.Mutex
		all  result
		errs error
		wg   sync.WaitGroup
	)
	for _, c := range children {
		wg.Go(func() {
			part, err := c.collect(m)
			mu.Lock()
			defer mu.Unlock()
			all.merge(part)
			errs = errors.Join(errs, err)
		})
	}
	wg.Wait()
	return all, errs
}

// child is a child process as its parent sees it.
type child struct {
	proc int
	cmd  *exec.Cmd
	in   *json.Encoder
	out  *json.Decoder
}

// leaveTime is how long an interrupted child may take to end by itself.
const leaveTime = 2 * leaseTTL

func startChild(ctx context.Context, t task) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel = in.Close
	cmd.WaitDelay = leaveTime
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{proc: t.Proc, cmd: cmd, in: json.NewEncoder(in), out: json.NewDecoder(out)}
	return c, c.in.Encode(t)
}

// hear returns the next message of the child; a reported failure is an error.
func (c *child) hear() (said message, err error) {
	if err := c.out.Decode(&said); err != nil {
		return said, err
	}
	if said.Failure != "" {
		return said, fmt.Errorf("child process %d: %s", c.proc, said.Failure)
	}
	return said, nil
}

// collect adds the child's progress to m until its result arrives.
func (c *child) collect(m *meter) (result, error) {
	var before message
	for {
		said, err := c.hear()
		if err != nil {
			return result{}, err
		}
		if said.Result != nil {
			said.Answered, said.Bought = int64(said.Result.answered()), int64(said.Result.Bought)
		}
		m.answered.Add(said.Answered - before.Answered)
		m.bought.Add(said.Bought - before.Bought)
		if said.Result != nil {
			return *said.Result, nil
		}
		before = said
	}
}

func waitAll(children []*child) (err error) {
	for _, c := range children {
		err = errors.Join(err, c.cmd.Wait())
	}
	return err
}

// serveParent is the main program of a child.
func serveParent(ctx context.Context, stdin io.Reader, stdout io.Writer) int {
	out := &messenger{out: json.NewEncoder(stdout)}
	if err := obey(ctx, json.NewDecoder(stdin), out); err != nil {
		out.say(message{Failure: err.Error()})
		return 1
	}
	return 0
}

// obey runs one task.
func obey(ctx context.Context, in *json.Decoder, out *messenger) error {
	var t task
	if err := in.Decode(&t); err != nil {
		return err
	}
	c, r, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer c.close()

	out.say(message{Ready: true})
	if err := in.Decode(new(string)); err != nil { // "go", or the end of input if the parent has ended
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { cancel(in.Decode(new(string))) }() // nothing but the end of input follows; this process ends with its task
	m := new(meter)
	stop := out.report(m)
	seen, err := c.run(ctx, r, m)
	stop()
	if err == nil {
		out.say(message{Result: &seen})
	}
	return err
}

// open makes the process ready for its part of the task. The caller closes the crew.
func (t task) open(ctx context.Context) (c *crew, r round, err error) {
	c = &crew{settings: t.Settings, system: t.System, first: t.Proc, stride: t.Settings.Procs}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if t.DB != "" {
		return c, modes[t.Round], errors.Join(c.openSQL(ctx, t.DB, t.Pool), c.openBackend(ctx, t.Backend))
	}
	c.shop, err = openShop(t.Database)
	return c, rounds[t.Round], errors.Join(err, c.openBackend(ctx, t.Backend))
}

// messenger writes one message at a time. It ignores errors: the parent has ended then.
type messenger struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (p *messenger) say(m any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(m)
}

// report sends the progress of the round until stop has returned.
func (p *messenger) report(m *meter) (stop func()) {
	return every(reportInterval, func() {
		p.say(message{Answered: m.answered.Load(), Bought: m.bought.Load()})
	})
}
