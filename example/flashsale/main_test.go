package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The README's first command compiles what it runs: no client of a service, and nothing of a server.
func TestWhatIsCompiled(t *testing.T) {
	linked := func(dir string) string {
		text, err := exec.Command("go", "list", "-deps", dir).Output()
		require.NoError(t, err)
		return string(text)
	}
	small, full := linked("."), linked("./full")
	assert.Contains(t, small, "modernc.org/sqlite\n")
	for _, dear := range []string{
		"github.com/redis/go-redis/v9", "github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql", "go.etcd.io/etcd/client/v3", "github.com/go-zookeeper/zk",
		"google.golang.org/grpc", "google.golang.org/protobuf/proto", "github.com/prometheus/client_golang/prometheus", "go.opentelemetry.io/otel/sdk/metric", "net/http",
	} {
		assert.False(t, strings.Contains(small, dear+"\n"), dear)
		assert.True(t, strings.Contains(full, dear+"\n"), dear)
	}
}
