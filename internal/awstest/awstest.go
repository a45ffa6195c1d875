// Package awstest answers in this process as S3 and DynamoDB do, as far as locks ask: their rules of conditions, and their errors. It can
// also be slow, lose replies, refuse, and not compare. It checks no signatures.
package awstest

import (
	"fmt"
	"hash/crc32"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// Server is one bucket, or one table. It is safe for concurrent use.
type Server struct {
	Addr string // host:port
	name string
	ask  func(*http.Request) (action string, carryOut func(Fault) answer) // s3 or dynamo

	mu      sync.Mutex // guards all below
	objects map[string][]byte
	items   map[string]map[string]any
	set     map[string]string // what Set has set
	faults  []Fault
	used    map[string]int // requests, by their IAM actions
}

// Fault is what happens to requests.
type Fault struct {
	Action  string        // to those of this IAM action: "s3:PutObject". "": to all
	Times   int           // to so many. 0: to all
	Delay   time.Duration // before a request is carried out
	Ignores string        // a condition: "If-Match"
	Status  int           // of the answer, without carrying it out. 0: it is carried out
	Code    string        // of that answer
	Loses   bool          // the answer, after it was carried out
	Rests   bool          // BatchGetItem reads the first key only
}

// Denied has the user lack the right to an action of this service.
func (s *Server) Denied(action string) Fault {
	if strings.HasPrefix(action, "s3:") {
		return Fault{Action: action, Status: http.StatusForbidden, Code: "AccessDenied"}
	}
	return Fault{Action: action, Status: http.StatusBadRequest, Code: "AccessDeniedException"}
}

// Environment has the SDK find credentials and a region in the environment, and no file of the user's.
var Environment = map[string]string{
	"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-central-1", "AWS_CONFIG_FILE": "/none", "AWS_SHARED_CREDENTIALS_FILE": "/none",
	"AWS_EC2_METADATA_DISABLED": "true",
}

func start(t interface{ Cleanup(func()) }, s *Server) *Server {
	s.objects, s.items, s.used, s.set = map[string][]byte{}, map[string]map[string]any{}, map[string]int{}, map[string]string{}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.CloseClientConnections() // of clients that wait for an answer
		h.Close()
	})
	s.Addr = strings.TrimPrefix(h.URL, "http://")
	return s
}

// with calls f while no request is carried out.
func (s *Server) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Fail has faults happen from now on, instead of those before. A request meets the first that fits.
func (s *Server) Fail(faults ...Fault) { s.with(func() { s.faults = faults }) }

// Set sets the answer to a question about the bucket or the table: XML, or JSON.
func (s *Server) Set(action, text string) { s.with(func() { s.set[action] = text }) }

// Lose has an object or an item be lost.
func (s *Server) Lose(name string) {
	s.with(func() { delete(s.objects, name); delete(s.items, name) })
}

// Names returns the names of all objects, or the keys of all items.
func (s *Server) Names() (all []string) {
	s.with(func() { all = slices.AppendSeq(slices.Sorted(maps.Keys(s.objects)), maps.Keys(s.items)) })
	slices.Sort(all)
	return all
}

// Used returns how many requests there were of each IAM action.
func (s *Server) Used() (all map[string]int) {
	s.with(func() { all = maps.Clone(s.used) })
	return all
}

// answer is an answer of the service. The zero Status is 200.
type answer struct {
	status           int
	code, text, etag string // code: of an error
}

// ServeHTTP carries out one request. What no lock asks for it does not know.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	action, carryOut := s.ask(r)
	fault := s.faultOf(action)
	time.Sleep(fault.Delay)
	a := answer{status: fault.Status, code: fault.Code, text: "as the test wants"}
	if a.status == 0 {
		s.with(func() { a = carryOut(fault) })
	}
	if fault.Loses {
		panic(http.ErrAbortHandler)
	}
	if a.etag != "" {
		w.Header().Set("ETag", a.etag)
	}
	switch isTable := strings.HasPrefix(action, "dynamodb:"); {
	case a.code != "" && isTable:
		a.text = fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":%q}`, a.code, a.text)
	case a.code != "":
		a.text = fmt.Sprintf(`<?xml version="1.0"?><Error><Code>%s</Code><Message>%s</Message></Error>`, a.code, a.text)
	}
	w.Header().Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE([]byte(a.text)))) // DynamoDB's
	w.WriteHeader(max(a.status, http.StatusOK))
	_, _ = w.Write([]byte(a.text))
}

// faultOf notes a request, and returns what happens to it.
func (s *Server) faultOf(action string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[action]++
	i := slices.IndexFunc(s.faults, func(f Fault) bool { return f.Action == "" || f.Action == action })
	if i < 0 {
		return Fault{}
	}
	f := s.faults[i]
	if s.faults[i].Times--; s.faults[i].Times == 0 {
		s.faults = slices.Delete(s.faults, i, i+1)
	}
	return f
}
