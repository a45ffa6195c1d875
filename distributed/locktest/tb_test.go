package locktest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wllock/wllock/distributed/memlock"
)

// logged is a TB that records log lines.
type logged struct {
	TB
	lines []string
}

func (l *logged) Logf(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// Without its hooks a service is not checked whole, which the suite must say.
func TestRulesNotCheckedAreCounted(t *testing.T) {
	s := skips{count: map[string]int{}}
	fixture := Fixture{Open: func(TB) Service { return Service{Backend: memlock.New(), Expire: func(string) {}} }}
	for _, c := range cutCases {
		r := &recorder{}
		r.watch(func() { c.Check(counted{r, &s}, fixture) })
		assert.Empty(t, r.failures)
	}
	l := &logged{}
	s.log(l)
	assert.Equal(t, []string{fmt.Sprintf("%d rules not checked: no Cut", len(cutCases))}, l.lines)
}
