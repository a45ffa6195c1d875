package dynamolock

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/awstest"
	"github.com/wllock/wllock/internal/race"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
)

func TestMain(m *testing.M) {
	for name, value := range awstest.Environment {
		_ = os.Setenv(name, value)
	}
	goleak.VerifyTestMain(m)
}

func open(t locktest.TB, url string) *Backend {
	t.Helper()
	b, err := Open(url)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestConformance(t *testing.T) {
	s := awstest.DynamoDB(t, "locks")
	locktest.Run(t, locktest.Fixture{TTL: 2 * locktest.DefaultTTL, Skip: heavy, Open: func(t locktest.TB) locktest.Service {
		proxy := testproc.NewProxy(t, s.Addr)
		direct := open(t, s.TableURL(s.Addr))
		return locktest.Service{
			Backend: open(t, s.TableURL(proxy.Addr)),
			Another: func() distributed.Backend { return open(t, s.TableURL(proxy.Addr)) },
			Expire: func(key string) {
				if err := testlocker.Expire(direct.store, key); err != nil {
					t.Fatalf("%v", err)
				}
			},
			Cut: proxy.Stall,
		}
	}})
}

// heavy says which cases are long: those that send thousands of requests, each of which takes the SDK half a millisecond of a processor. Under
// the race detector it takes many times as much.
func heavy(c locktest.Case) string {
	byChance := c.Name == "holders of permits learn that another instance waits" || c.Name == "canceling and leaving at any time leaves nothing"
	many := strings.Contains(c.Name, "under load") || strings.Contains(c.Name, "at any time") || c.Name == "keys do not touch each other"
	switch {
	case testing.Short() && byChance:
		return "it has failed by chance: see CONTRIBUTING.md"
	case testing.Short() && many:
		return "sends thousands of requests; go test without -short runs this"
	case race.Enabled:
		return locktest.Brief(c)
	}
	return ""
}
