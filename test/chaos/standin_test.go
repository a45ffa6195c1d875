package chaos

import (
	"net/http"
	"strings"
	"testing"

	"github.com/wllock/wllock/internal/awstest"
	"github.com/wllock/wllock/internal/kubetest"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/test/history"
)

// Services that answer in this process as S3, DynamoDB and Kubernetes do.

func bucket(t *testing.T) *service {
	s := awstest.S3(t, "chaos")
	slow, conflict := awstest.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}, awstest.Fault{Status: http.StatusConflict, Code: "ConditionalRequestConflict"}
	return aws(s, s.BucketURL, "s3:PutObject", slow, conflict)
}

func table(t *testing.T) *service {
	s := awstest.DynamoDB(t, "chaos")
	slow := awstest.Fault{Status: http.StatusBadRequest, Code: "ProvisionedThroughputExceededException"}
	return aws(s, s.TableURL, "dynamodb:PutItem", slow, awstest.Fault{Status: http.StatusBadRequest, Code: "TransactionConflictException"})
}

// aws is a service that is too busy for all requests now and then. For some time it also conflicts with writes, or carries them out without an
// answer.
func aws(s *awstest.Server, url func(addr string) string, write string, busy, conflict awstest.Fault) *service {
	conflict.Action = write
	to := func(f awstest.Fault) func() { return func() { s.Fail(f) } }
	return standIn(s.Addr, url, func() { s.Fail() }, map[string]func(){
		"busy": to(busy), "conflicts": to(conflict), lost: to(awstest.Fault{Action: write, Loses: true}),
	})
}

func kubernetes(t *testing.T) *service {
	s := kubetest.Start(t)
	to := func(fault kubetest.Fault, verbs ...string) func() {
		return func() {
			s.Faults(func(verb string) kubetest.Fault {
				if len(verbs) == 0 || strings.Contains(strings.Join(verbs, " "), verb) {
					return fault
				}
				return kubetest.Fault{}
			})
		}
	}
	url := func(addr string) string {
		return "kubernetes://" + kubetest.Namespace + "?kubeconfig=" + s.Kubeconfig(t, addr)
	}
	all := standIn(s.Addr, url, to(kubetest.Fault{}), map[string]func(){
		"busy":   to(kubetest.Fault{Status: http.StatusTooManyRequests}),
		"errors": to(kubetest.Fault{Status: http.StatusInternalServerError}, "create", "update"),
		lost:     to(kubetest.Fault{Lose: true}, "create", "update", "delete"),
	})
	all.own["watches end"] = func(f *fleet, name string) {
		f.during(history.Fault{Name: name}, func() { s.Compact(); s.EndWatches() })
	}
	return all
}

// standIn is a service in this process, with faults that begin does until end.
func standIn(addr string, url func(addr string) string, end func(), begin map[string]func()) *service {
	s := &service{servers: []*testproc.Server{{Addr: addr}}, here: true, own: map[string]func(*fleet, string){}}
	s.url = func(_ int, ways map[string]string) string { return url(ways[addr]) }
	for name, fault := range begin {
		s.own[name] = func(f *fleet, _ string) { f.away(name, fault, end, f.upTo(2*f.task.TTL)) }
	}
	return s
}
