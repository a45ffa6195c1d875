// Package stage is the flash sale in a browser, and the server of its shop. Read scene.go after this file.
package stage

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"sync"

	"github.com/wllock/wllock/example/flashsale/internal/face"
	"github.com/wllock/wllock/example/flashsale/internal/sale"
)

// stage is where the sales of the page happen: a lock service and shops, which are processes of their own, so that they can be
// killed. One goroutine owns all of that, the scene; everything else sends it functions.
//
//	buttons ──▶ Press ──┐
//	news of shops ──────┼──▶ do ──▶ run: the scene ──▶ Watch: the state of it
//	databases ──────────┘
type stage struct {
	settings sale.Settings
	stderr   io.Writer
	ctx      context.Context // of the server; its end is the stage's
	do       chan func(*scene)
	ended    chan struct{}  // closed when the scene and all its processes are gone
	helpers  sync.WaitGroup // goroutines that wait and look for the scene; they end when the server does
}

var _ face.Stage = (*stage)(nil)

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

// send sends the scene what to do. It reports whether the scene will: it does not when the server ends.
func (st *stage) send(do func(*scene)) bool {
	select {
	case st.do <- do:
		return true
	case <-st.ctx.Done():
		return false
	}
}

// tell has the scene do something that may change it.
func (st *stage) tell(do func(*scene)) bool {
	return st.send(func(sc *scene) {
		do(sc)
		close(sc.newer)
		sc.newer = make(chan struct{})
	})
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

// Watch implements face.Stage.
func (st *stage) Watch() (state []byte, newer <-chan struct{}) {
	done := make(chan struct{})
	if st.send(func(sc *scene) {
		defer close(done)
		state, _ = json.Marshal(sc.describe()) // it has nothing that JSON does not know
		newer = sc.newer
	}) {
		<-done
	}
	return state, newer
}

// Press implements face.Stage.
func (st *stage) Press(button string, form url.Values) error {
	return st.ask(func(sc *scene) error { return sc.press(button, form) })
}
