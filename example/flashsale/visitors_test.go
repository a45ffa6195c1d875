package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Visitors come while earlier ones wait, otherwise a database that stands still would be asked once.
func TestVisitorsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v visitors
		n := 0
		stop := v.come(t.Context(), func(context.Context) error {
			n++
			if n == 2 {
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
