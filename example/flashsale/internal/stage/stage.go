// Package stage is the flash sale in a browser, and the server of its shop. Read scene.go after this file; face.go is the page.
package stage

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/wllock/wllock/example/flashsale/internal/sale"
)

// stage is where the sales of the page happen: a lock service and shops, which are processes of their own, so that they can be
// killed. One goroutine owns all of that, the scene; everything else sends it functions.
//
//	buttons ────────┐
//	news of shops ──┼──▶ do ──▶ run: the scene ──▶ events: the state of it
//	databases ──────┘
type stage struct {
	settings sale.Settings
	stderr   io.Writer
	ctx      context.Context // of the server; its end is the stage's
	do       chan func(*scene)
	ended    chan struct{}  // closed when the scene and all its processes are gone
	helpers  sync.WaitGroup // goroutines that wait and look for the scene; they end when the server does
}

// newStage makes a stage, on which nothing runs until a page opens it. It ends with ctx; ended is closed when it has.
func newStage(ctx context.Context, s sale.Settings, stderr io.Writer) *stage {
	st := &stage{settings: s, stderr: stderr, ctx: ctx, do: make(chan func(*scene)), ended: make(chan struct{})}
	go st.run(&scene{stage: st, newer: make(chan struct{}), pageState: pageState{Threshold: s.Threshold, RTT: s.RTT.String()}})
	return st
}

func (st *stage) run(sc *scene) {
	defer close(st.ended)
	for {
		select {
		case do := <-st.do:
			do(sc)
		case <-st.ctx.Done():
			close(sc.newer)
			sc.close()
			st.helpers.Wait()
			_ = os.RemoveAll(sc.dir) // a leftover temporary directory is not worth an exit status
			return
		}
	}
}

var errEnding = errors.New("the server is ending")

// look has the scene do something, which changes nothing that a page shows, and returns what came of it.
func (st *stage) look(do func(*scene) error) error {
	answer := make(chan error, 1)
	select {
	case st.do <- func(sc *scene) { answer <- do(sc) }:
		return <-answer
	case <-st.ctx.Done():
		return errEnding
	}
}

// ask is look for what may change the scene.
func (st *stage) ask(do func(*scene) error) error {
	return st.look(func(sc *scene) error {
		defer func() {
			close(sc.newer)
			sc.newer = make(chan struct{})
		}()
		return do(sc)
	})
}

// tell is ask for what cannot fail but by the end of the server, which everybody hears of.
func (st *stage) tell(do func(*scene)) {
	_ = st.ask(func(sc *scene) error {
		do(sc)
		return nil
	})
}
