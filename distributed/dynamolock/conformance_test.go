package dynamolock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/distributed/locktest"
	"github.com/wllock/wllock/internal/awstest"
	"github.com/wllock/wllock/internal/race"
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
				if err := expire(direct.store, key); err != nil {
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
	many := strings.Contains(c.Name, "under load") || strings.Contains(c.Name, "at any time") || c.Name == "keys do not touch each other"
	switch {
	case testing.Short() && many:
		return "sends thousands of requests; go test without -short runs this"
	case race.Enabled:
		return locktest.Brief(c)
	}
	return ""
}

// expire has the owners of a lock be dead. Its queue stays.
func expire(s *store, key string) error {
	for {
		d, err := s.Get(context.Background(), key)
		if err != nil || d.Version == "" {
			return err
		}
		var lock map[string]any
		in := json.NewDecoder(bytes.NewReader(d.Data))
		in.UseNumber() // a fence is longer than a float64 is exact
		if err := in.Decode(&lock); err != nil {
			return err
		}
		delete(lock, "owners")
		if lock["queue"] != nil {
			lock["owners"] = []map[string]any{{"id": "nobody", "instance": "nobody", "ttl": 1}} // whose turn is over at once
		}
		data, _ := json.Marshal(lock)
		_, err = s.Put(context.Background(), key, data, d.Version, time.Hour)
		if !errors.Is(err, register.ErrConflict) {
			return err
		}
	}
}
