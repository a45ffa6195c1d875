package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Visitors come while earlier ones wait, otherwise a database that stands still would be asked once.
func TestVisitorsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v visitors
		var n atomic.Int32
		stop := v.come(t.Context(), func(context.Context) error {
			if n.Add(1) == 2 {
				return errors.New("no connection")
			}
			time.Sleep(time.Second)
			return nil
		})
		time.Sleep(4*visitInterval + visitInterval/2)
		stop()
		assert.Len(t, v.waits, 5)
		assert.EqualValues(t, 4, v.shown)
		assert.Contains(t, v.waits, time.Second)
	})
}
