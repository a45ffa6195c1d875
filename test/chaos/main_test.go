package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/internal/awstest"
)

// workerEnv has this program be one of the processes that count: see worker.
const workerEnv = "WLLOCK_TEST_WORKER"

func TestMain(m *testing.M) {
	for name, value := range awstest.Environment {
		_ = os.Setenv(name, value)
	}
	for env, is := range map[string]interface{ run() error }{workerEnv: new(worker), natsEnv: new(natsServer)} {
		text, ok := os.LookupEnv(env)
		if !ok {
			continue
		}
		err := json.Unmarshal([]byte(text), is)
		if err == nil {
			err = is.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
