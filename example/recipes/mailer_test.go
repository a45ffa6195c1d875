package recipes_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/example/recipes"
	"github.com/wllock/wllock/wllocktest"
)

func TestMailIsSentOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faults := wllocktest.NewWithFaults(t)
		sent := 0
		send := func(context.Context, string) error { sent++; return nil }
		for range 3 { // processes
			mail := &recipes.Mailer{Locker: faults.Process(), Send: send}
			require.NoError(t, mail.Remind(t.Context(), "7"))
			time.Sleep(10 * time.Minute)
		}
		require.Equal(t, 1, sent)
		time.Sleep(31 * time.Minute)
		mail := &recipes.Mailer{Locker: faults.Process(), Send: send}
		require.NoError(t, mail.Remind(t.Context(), "7"))
		require.Equal(t, 2, sent)
	})
}
