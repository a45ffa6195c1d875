package httpguard_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/middleware/httpguard"
)

// Two servers let two requests in together; the next is told at once, or waits.
func TestPermits(t *testing.T) {
	b, inside, leave := memlock.New(), make(chan uint64), make(chan struct{})
	handler := func(_ http.ResponseWriter, r *http.Request) {
		held, _ := wllock.HeldFrom(r.Context())
		inside <- held.Fence()
		<-leave
	}
	first, second := testlocker.On(t, b), testlocker.On(t, b)
	one := serve(t, first, byPath, handler, httpguard.WithCallOptions(wllock.Permits(2)))
	two := serve(t, second, byPath, handler, httpguard.WithCallOptions(wllock.Permits(2)))
	impatient := serve(t, second, byPath, never(t), httpguard.WithCallOptions(wllock.Permits(2), wllock.NoWait()))
	var all sync.WaitGroup
	all.Go(func() { assert.Equal(t, http.StatusOK, get(t, one).status) })
	all.Go(func() { assert.Equal(t, http.StatusOK, get(t, two).status) })
	fences := map[uint64]bool{<-inside: true, <-inside: true}
	get(t, impatient).isProblem(t, http.StatusConflict, "held", true)
	all.Go(func() { assert.Equal(t, http.StatusOK, get(t, one).status) })
	leave <- struct{}{}
	fences[<-inside] = true
	require.Len(t, fences, 3)
	close(leave)
	all.Wait()
}
