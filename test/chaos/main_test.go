package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// workerEnv has this program be one of the processes that count: see worker.
const workerEnv = "WLLOCK_TEST_WORKER"

func TestMain(m *testing.M) {
	text, isWorker := os.LookupEnv(workerEnv)
	if !isWorker {
		goleak.VerifyTestMain(m)
		return
	}
	var w worker
	err := json.Unmarshal([]byte(text), &w.task)
	if err == nil {
		err = w.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
