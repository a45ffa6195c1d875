package hold

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// glimpsed is a context that ends while somebody asks for its end, who is told that it has not.
type glimpsed struct {
	context.Context
	cancel context.CancelCauseFunc
	asked  func()
}

func (g *glimpsed) Err() error {
	err := g.Context.Err()
	if asked := g.asked; asked != nil {
		g.asked = nil
		g.cancel(errParent)
		asked()
	}
	return err
}

var errParent = errors.New("the parent's cause")

// The caller's context ends at the same moment as the hold ends its own: what a reader has seen first stays.
func TestTheEndThatWasSeenFirstStays(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	parent := &glimpsed{Context: ctx, cancel: cancel}
	c := new(All)
	c.parent = parent
	derived, stop := context.WithCancel(c)
	defer stop()
	done := c.Done()
	parent.asked = func() {
		require.ErrorIs(t, context.Cause(c), errParent)
		require.ErrorIs(t, c.Err(), context.Canceled)
	}
	c.end(ErrLockTimeMax)
	require.Nil(t, parent.asked)
	require.ErrorIs(t, context.Cause(c), errParent)
	<-done
	<-derived.Done()
	require.Nil(t, c.endedByHold())
}

// The other way round, too.
func TestTheEndOfTheHoldStays(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	c := new(All)
	c.parent = ctx
	done := c.Done()
	c.end(ErrLockTimeMax)
	<-done
	cancel(errParent)
	require.ErrorIs(t, context.Cause(c), ErrLockTimeMax)
	require.NotNil(t, c.endedByHold())
}
