package redlock

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if words, ok := os.LookupEnv(childVariable); ok {
		runChild(strings.Fields(words))
		return
	}
	goleak.VerifyTestMain(m)
}
