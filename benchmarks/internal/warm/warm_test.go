package warm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachCoreIsKeptAwakeAtTheLowestPriority(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	all, err := Start()
	defer all.Stop()
	require.NoError(t, err)
	require.Len(t, all, runtime.NumCPU())
	for _, c := range all {
		require.Eventually(t, func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
			fields := strings.Fields(string(stat)) // see proc(5)
			used, _ := strconv.Atoi(fields[13])
			return err == nil && used >= 3 && fields[18] == "19" // more than a start takes, in hundredths of a second
		}, time.Minute, 10*time.Millisecond)
	}
	all.Stop()
	for _, c := range all {
		assert.NotNil(t, c.ProcessState, "it has ended")
	}
}

func TestAChildEndsWithItsInput(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0]) // its input has ended
	c.Env = append(os.Environ(), childVariable+"=1")
	require.NoError(t, c.Run())
}
