package httpguard

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
)

// Only a request that was not admitted may simply be retried.
func TestClosedMayBeRetriedOnlyIfNotAdmitted(t *testing.T) {
	closed := wllock.ErrClosed
	for name, test := range map[string]struct {
		err   error
		retry bool
	}{
		"not admitted":                         {&wllock.Error{Op: "acquire", Err: closed}, true},
		"cause of the handler's context":       {closed, false},
		"admitted":                             {&wllock.Error{Op: "hold", Ran: true, Err: closed}, false},
		"waiting with the context of a holder": {&wllock.Error{Op: "acquire", Err: errors.Join(context.Canceled, closed)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := answerTo(test.err)
			require.Equal(t, "shutting-down", a.kind)
			require.Equal(t, test.retry, a.retry)
		})
	}
}
