package sale

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Visitors come while earlier ones wait, otherwise a database that stands still would be asked once.
func TestVisitorsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		over := make(chan struct{})
		time.AfterFunc(4*visitInterval+visitInterval/2, func() { close(over) })
		waits := visitors(t.Context(), over, func(context.Context) {
			if n.Add(1) == 2 {
				return // no connection
			}
			time.Sleep(time.Second)
		})
		assert.Len(t, waits, 5)
		assert.Contains(t, waits, time.Second)
	})
}
