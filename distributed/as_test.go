package distributed_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wllock/wllock/distributed"
)

type inner struct{ distributed.Lease }

type outer struct{ distributed.Lease }

func (o outer) Unwrap() distributed.Lease { return o.Lease }

func TestAsFollowsUnwrap(t *testing.T) {
	l := &inner{}
	found, ok := distributed.As[*inner](outer{outer{l}})
	assert.True(t, ok)
	assert.Same(t, l, found)

	first, ok := distributed.As[outer](outer{outer{l}})
	assert.True(t, ok)
	assert.Equal(t, outer{outer{l}}, first, "the first in the chain")

	_, ok = distributed.As[*inner](outer{})
	assert.False(t, ok, "a wrapper of nothing")
	_, ok = distributed.As[*inner](nil)
	assert.False(t, ok)
	_, ok = distributed.As[outer](l)
	assert.False(t, ok, "a lease that hides what it wraps")
}
