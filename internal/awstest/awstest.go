// Package awstest answers in this process as S3 and DynamoDB do, as far as locks ask: their rules of conditions, and their errors. It can
// also be slow, lose replies, refuse, and not compare. It checks no signatures.
package awstest

import (
	"fmt"
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

	mu       sync.Mutex // guards all below
	objects  map[string][]byte
	items    map[string]map[string]any
	table    Table
	bucket   Bucket
	faults   []*Fault
	used     map[string]int // requests, by their IAM actions
	replaced int            // writes that were carried out
}

// Fault is what happens to requests. Those of the first fault that fits are met by it.
type Fault struct {
	Action  string        // to requests of this IAM action: "s3:PutObject". "": of all
	Times   int           // to so many. 0: to all
	Delay   time.Duration // before the request is carried out
	Ignores string        // a condition: "If-Match"
	Status  int           // the answer, without carrying it out. 0: it is carried out
	Code    string        // of the error
	Loses   bool          // the answer, after it was carried out
	Rests   bool          // BatchGetItem reads the first key only
}

// Credentials has the SDK find some in the environment, a region, and no file of the user's.
func Credentials(setenv func(name, value string)) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-central-1", "AWS_CONFIG_FILE": "/none", "AWS_SHARED_CREDENTIALS_FILE": "/none",
		"AWS_EC2_METADATA_DISABLED": "true",
	} {
		setenv(name, value)
	}
}

func start(t interface{ Cleanup(func()) }, s *Server) *Server {
	s.objects, s.items, s.used = map[string][]byte{}, map[string]map[string]any{}, map[string]int{}
	h := httptest.NewServer(http.HandlerFunc(s.serve))
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

// Fail has faults happen from now on, instead of those before.
func (s *Server) Fail(faults ...Fault) {
	s.with(func() {
		s.faults = nil
		for _, f := range faults {
			s.faults = append(s.faults, &f)
		}
	})
}

// Used returns the IAM actions that were used.
func (s *Server) Used() (all []string) {
	s.with(func() { all = slices.Sorted(maps.Keys(s.used)) })
	return all
}

// Count returns how many requests of an action there were.
func (s *Server) Count(action string) (n int) {
	s.with(func() { n = s.used[action] })
	return n
}

// answer is an answer of the service.
type answer struct {
	status int
	code   string // of an error
	text   string // of an error, or the body
	etag   string
}

func refusal(status int, code, text string) answer {
	return answer{status: status, code: code, text: text}
}

// serve carries out one request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	ask := s.s3
	if s.table.Key != "" {
		ask = s.dynamo
	}
	action, carryOut, err := ask(r)
	if err != nil {
		panic(err) // the client has gone, or asks what no lock does
	}
	fault := s.faultOf(action)
	time.Sleep(fault.Delay)
	var a answer
	if fault.Status != 0 {
		a = refusal(fault.Status, fault.Code, fault.Code+" as the test wants")
	} else {
		s.with(func() { a = carryOut(fault) })
	}
	if fault.Loses {
		panic(http.ErrAbortHandler)
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.etag != "" {
		w.Header().Set("ETag", a.etag)
	}
	body := a.text
	switch {
	case a.code != "" && s.table.Key != "":
		body = fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":%q}`, a.code, a.text)
	case a.code != "":
		body = fmt.Sprintf(`<?xml version="1.0"?><Error><Code>%s</Code><Message>%s</Message></Error>`, a.code, a.text)
	}
	if s.table.Key != "" {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	}
	w.WriteHeader(a.status)
	_, _ = w.Write([]byte(body))
}

// faultOf notes a request, and returns what happens to it.
func (s *Server) faultOf(action string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[action]++
	for i, f := range s.faults {
		if f.Action != "" && f.Action != action {
			continue
		}
		fault := *f
		if f.Times--; f.Times == 0 {
			s.faults = slices.Delete(s.faults, i, i+1)
		}
		return fault
	}
	return Fault{}
}

// denied reports that the user lacks a right. The caller holds mu.
func (s *Server) denied(action string) bool {
	return slices.ContainsFunc(s.faults, func(f *Fault) bool { return f.Action == action && f.Status == http.StatusForbidden })
}
