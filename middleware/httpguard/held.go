package httpguard

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// heldBody is a body that the handler reads under the lock. When the hold ends, a Read that waits for the client returns: the
// connection (HTTP/2: the stream) gets a read deadline that has passed.
type heldBody struct {
	io.ReadCloser
	ctx  context.Context // of the hold
	w    http.ResponseWriter
	stop func() bool // of the hold's end

	// mu guards over, and is held while the deadline is set, which does not block: once end has returned, the connection belongs to the
	// server again, and is left alone. If the hold ends while the end of the body is being read, either may be first; a late deadline only closes the
	// connection after the answer.
	mu   sync.Mutex
	over bool
}

func newHeldBody(ctx context.Context, w http.ResponseWriter, body io.ReadCloser) *heldBody {
	b := &heldBody{ReadCloser: body, ctx: ctx, w: w}
	b.stop = context.AfterFunc(ctx, b.interrupt)
	return b
}

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (n int, err error) {
	if b.ctx.Err() == nil {
		n, err = b.ReadCloser.Read(p)
	}
	switch {
	case err == io.EOF:
		b.end()
	case b.ctx.Err() != nil && n == 0:
		err = fmt.Errorf("httpguard: body read under the lock: %w", context.Cause(b.ctx))
	}
	return n, err
}

// Close implements io.Closer.
func (b *heldBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// interrupt ends a Read that waits, and all later ones.
func (b *heldBody) interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = http.NewResponseController(b.w).SetReadDeadline(time.Unix(1, 0)) // rule M4; not supported: Read goes on
	}
}

// end is called when nobody reads the body any more: it is at its end, closed, or the handler has returned.
func (b *heldBody) end() {
	b.stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}
