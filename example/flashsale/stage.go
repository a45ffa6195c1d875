package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/wllock/wllock/example/flashsale/internal/face"
)

// stage is where the sales of the page happen: a lock service and shops, which are processes of their own, so that they can be
// killed. One goroutine owns all of that, the scene; everything else sends it functions.
//
//	buttons ──▶ ask ──┐
//	news of shops ────┼──▶ do ──▶ run: the scene ──▶ show: the state, which Watch returns
//	databases ────────┘
type stage struct {
	settings settings
	stderr   io.Writer
	ctx      context.Context // of the server; its end is the stage's
	do       chan func(*scene)
	ended    chan struct{}  // closed when the scene and all its processes are gone
	helpers  sync.WaitGroup // goroutines that read, wait and look for the scene

	mu    sync.Mutex
	state []byte        // guarded by mu
	newer chan struct{} // guarded by mu: closed when state changes
}

var _ face.Stage = (*stage)(nil)

// newStage makes a stage, on which nothing runs until a browser comes. It ends with ctx; ended is closed when it has.
func newStage(ctx context.Context, s settings, stderr io.Writer) *stage {
	st := &stage{
		settings: s, stderr: stderr, ctx: ctx, do: make(chan func(*scene)), ended: make(chan struct{}),
		newer: make(chan struct{}),
	}
	sc := newScene(st)
	st.show(sc)
	go st.run(sc)
	return st
}

// showInterval bounds how often the state is made.
const showInterval = 50 * time.Millisecond

func (st *stage) run(sc *scene) {
	defer close(st.ended)
	ticker := time.NewTicker(showInterval)
	defer ticker.Stop()
	for {
		select {
		case do := <-st.do:
			do(sc)
			sc.changed = true
		case <-ticker.C:
			if sc.changed {
				st.show(sc)
			}
		case <-st.ctx.Done():
			sc.close()
			st.helpers.Wait()
			if sc.dir != "" {
				_ = os.RemoveAll(sc.dir) // a leftover temporary directory is not worth an exit status
			}
			return
		}
	}
}

// show publishes the state.
func (st *stage) show(sc *scene) {
	sc.changed = false
	text, err := json.Marshal(sc.describe())
	if err != nil {
		panic(err) // it has nothing that JSON does not know
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.state = text
	close(st.newer)
	st.newer = make(chan struct{})
}

// tell has the scene do something. It reports whether the scene will: it does not when the server ends.
func (st *stage) tell(do func(*scene)) bool {
	select {
	case st.do <- do:
		return true
	case <-st.ctx.Done():
		return false
	}
}

var errEnding = errors.New("the server is ending")

// ask has the scene do something and returns what came of it.
func (st *stage) ask(do func(*scene) error) error {
	answer := make(chan error, 1)
	if !st.tell(func(sc *scene) { answer <- do(sc) }) {
		return errEnding
	}
	return <-answer
}

// help runs something slow beside the scene. It must end when the server does.
func (st *stage) help(do func()) { st.helpers.Go(do) }

// Open implements face.Stage.
func (st *stage) Open() { st.tell(func(sc *scene) { sc.open() }) }

// Watch implements face.Stage.
func (st *stage) Watch() ([]byte, <-chan struct{}) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.state, st.newer
}

// StartSale implements face.Stage.
func (st *stage) StartSale(_ context.Context, p face.Plan) error {
	return st.ask(func(sc *scene) error { return sc.startSale(p) })
}

// EndSale implements face.Stage.
func (st *stage) EndSale(context.Context) error { return st.ask((*scene).endSale) }

// SetThreshold implements face.Stage.
func (st *stage) SetThreshold(_ context.Context, n int) error {
	return st.ask(func(sc *scene) error {
		sc.setThreshold(n)
		return nil
	})
}

// KillService implements face.Stage.
func (st *stage) KillService(context.Context) error { return st.ask((*scene).killService) }

// RestartService implements face.Stage.
func (st *stage) RestartService(context.Context) error { return st.ask((*scene).restartService) }

// KillShop implements face.Stage.
func (st *stage) KillShop(_ context.Context, n int) error {
	return st.ask(func(sc *scene) error { return sc.onShop(n, sc.killShop) })
}

// RestartShop implements face.Stage.
func (st *stage) RestartShop(_ context.Context, n int) error {
	return st.ask(func(sc *scene) error { return sc.onShop(n, sc.restartShop) })
}
