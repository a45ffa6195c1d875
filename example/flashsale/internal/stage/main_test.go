package stage

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/example/flashsale/internal/sale"
	"github.com/wllock/wllock/example/flashsale/internal/stores"
)

// program is what ./full runs.
var program = sale.Program{Stores: stores.All, Allowed: stores.Allowed, Serve: Serve}

// programVariable makes the test binary the program itself, with these flags.
const programVariable = "FLASHSALE_TEST_FLAGS"

// TestMain makes the test binary the program, or the child that the program starts it as.
func TestMain(m *testing.M) {
	if flags := os.Getenv(programVariable); flags != "" || sale.IsChild() {
		os.Args = append(os.Args[:1], strings.Fields(flags)...)
		program.Main()
	}
	goleak.VerifyTestMain(m)
}

// longLease is for sales over servers: the lease of a buyer on a machine that stands still for seconds is not to end.
const longLease = "-ttl 30s "

// serve runs the program and returns its exit status and what it said.
func serve(ctx context.Context, args ...string) (status int, stderr string) {
	var errs bytes.Buffer
	status = program.Run(ctx, args, io.Discard, &errs)
	return status, errs.String()
}
