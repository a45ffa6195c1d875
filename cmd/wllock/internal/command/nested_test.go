//go:build linux

package command

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who runs under a lock and asks for it again would wait for its own end, and is told so: also through another lock in between. A lock
// that has been in the environment for longer than its holder lives keeps nobody from it.
func TestRunInsideItself(t *testing.T) {
	t.Parallel()
	self := os.Args[0]
	for name, test := range map[string]struct {
		script string
		code   int
		says   string
	}{
		"the same":             {`"$0" run n 1 -- echo reached`, usage, "runs under shop:n:1 already"},
		"a read lock":          {`"$0" run --shared n 1 -- echo reached`, usage, "already"},
		"one in between":       {`"$0" run n 2 -- "$0" run n 1 -- echo reached`, usage, "already"},
		"another":              {`"$0" run n 2 -- "$0" run n 3 -- true`, 0, ""},
		"the variable is gone": {`env -u WLLOCK_LOCK_KEY "$0" run -n n 1 -- true`, notAcquired, "held"},
		"its holder is gone":   {`WLLOCK_LOCK_KEY=shop:n:4 WLLOCK_LOCK_PID=999999999 "$0" run n 4 -- true`, 0, "is not here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := exits(t, test.code, file(t), "run", "n", "1", "--", "sh", "-c", test.script, self)
			require.Empty(t, out)
			require.Contains(t, err, test.says)
			require.Equal(t, test.says == "", err == "", err)
		})
	}
}
