package grpcguard_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/wllocktest"
)

// Two calls are in together; the next is told at once, or waits.
func TestPermits(t *testing.T) {
	onBoth(t, func(t *testing.T, g guarded) {
		l, inside, leave := wllocktest.New(t), make(chan struct{}), make(chan struct{})
		s := &service{unary: func(context.Context) error {
			inside <- struct{}{}
			<-leave
			return nil
		}}
		c := g.start(t, s, l, byPayload, wllock.Permits(2))
		impatient := g.start(t, s, l, byPayload, wllock.Permits(2), wllock.NoWait())
		var all sync.WaitGroup
		call := func() {
			_, err := c.UnaryCall(t.Context(), simple)
			assert.NoError(t, err)
		}
		all.Go(call)
		all.Go(call)
		<-inside
		<-inside
		_, err := impatient.UnaryCall(t.Context(), simple)
		require.Equal(t, codes.Aborted, status.Code(err), err)
		all.Go(call)
		leave <- struct{}{}
		<-inside
		close(leave)
		all.Wait()
	})
}
