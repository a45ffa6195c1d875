package identity

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAttemptIsRead(t *testing.T) {
	for digits, want := range map[string]Attempt{
		"1200000000000000000007": {12, 7}, "118446744073709551615": {1, math.MaxUint64}, "1795259433090872": {1795259433090872, 0},
	} {
		got, ok := ReadAttempt(digits)
		assert.True(t, ok, digits)
		assert.Equal(t, want, got)
	}
	assert.Equal(t, "1200000000000000000007", Attempt{12, 7}.String())
	for _, bad := range []string{"", "x", "x00000000000000000007", "1x0000000000000000007", "99999999999999999999", "1200000000000000000007 "} {
		_, ok := ReadAttempt(bad)
		assert.False(t, ok, bad)
	}
	assert.NotEqual(t, NewAttempt(1), NewAttempt(1))
}

// Scripts compare attempts as Lua numbers. These have fewer digits, and a later attempt is the larger one all the same.
func TestLaterAttemptIsTheLargerLuaNumber(t *testing.T) {
	for _, number := range []uint64{1, 9, 1 << 40, uint64(time.Now().UnixMicro()), 3_600_000_000_000_000} {
		for last := range uint64(1000) {
			earlier, later := Attempt{number + last, math.MaxUint64}, Attempt{number + last + 1, 0}
			a, err := strconv.ParseFloat(earlier.String(), 64)
			assert.NoError(t, err)
			b, err := strconv.ParseFloat(later.String(), 64)
			assert.NoError(t, err)
			assert.Less(t, a, b, earlier)
		}
	}
}
