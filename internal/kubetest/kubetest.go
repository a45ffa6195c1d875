// Package kubetest is an API server of Kubernetes for tests, in this process, over TLS. It has Leases alone: the rules of optimistic concurrency
// with their status codes, lists in pages, watches, rights of a token, and faults. It shares no code with the client. StartReal starts
// Kubernetes' own.
package kubetest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wllock/wllock/internal/testproc"
)

// Verbs are those of RBAC that a client may need.
var Verbs = []string{"create", "delete", "get", "list", "update", "watch"}

const (
	// Namespace is there. Others are not.
	Namespace = "locks"
	prefix    = "/apis/coordination.k8s.io/v1/namespaces/"
)

// Fault is what happens to a request.
type Fault struct {
	Status int           // it is answered with this, and nothing is done. 404: as by a server that has no Leases. 0: it is carried out
	Delay  time.Duration // passes before the answer
	Lose   bool          // the answer is lost: the stream breaks instead
}

// Lease is an object.
type Lease struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   Metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec,omitempty"`
}

// Metadata is that of an object, or of a list.
type Metadata struct {
	Name            string            `json:"name,omitempty"`
	Namespace       string            `json:"namespace,omitempty"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Continue        string            `json:"continue,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	CreatedAt       string            `json:"creationTimestamp,omitempty"`
}

type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`

	revision int64
	name     string
}

// Server is an API server. Its methods are called concurrently.
type Server struct {
	Addr string

	http *httptest.Server
	dir  string

	mu       sync.Mutex // guards all below
	revision int64
	leases   map[string]Lease // by their names
	events   []event
	forgot   int64         // events up to this revision are compacted
	news     chan struct{} // closed, and made anew, when there is an event
	end      chan struct{} // closed, and made anew, when all watches end
	tokens   []string      // the latest is the last
	allowed  []string
	fault    func(verb string) Fault
}

// Start starts a server, with all rights for its token, until the test ends.
func Start(t testproc.TB) *Server {
	t.Helper()
	s := &Server{
		dir: testproc.TempDir(t, "kubetest"), revision: 1, leases: map[string]Lease{}, news: make(chan struct{}), end: make(chan struct{}), tokens: []string{rand.Text()},
		allowed: Verbs, fault: func(string) Fault { return Fault{} },
	}
	s.http = httptest.NewUnstartedServer(s)
	s.http.EnableHTTP2 = true
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that a test cuts
	s.http.TLS = &tls.Config{Certificates: []tls.Certificate{certificate()}}
	s.http.StartTLS()
	s.Addr = s.http.Listener.Addr().String()
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// certificate is of all servers. With that of httptest each handshake takes some ms.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// Kubeconfig writes one that leads to the server at an address, which may be that of a proxy, and returns its path. Its contexts are "test",
// the current one, and "stranger", whose token the server does not know.
func (s *Server) Kubeconfig(t testproc.TB, addr string) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.WriteFile(s.tokenFile(), []byte(s.tokens[len(s.tokens)-1]), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	return kubeconfig(t, s.dir, addr, named{"test": named{"tokenFile": s.tokenFile()}, "stranger": named{"token": "unknown"}})
}

type named = map[string]any

// kubeconfig writes a file with users, each with a context of its name. "test" is the current one.
func kubeconfig(t testproc.TB, dir, addr string, users named) string {
	t.Helper()
	config := named{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []named{{"name": "test", "cluster": named{"server": "https://" + addr, "certificate-authority-data": pemOf(certificate())}}},
	}
	var all, contexts []named
	for name, user := range users {
		all, contexts = append(all, named{"name": name, "user": user}), append(contexts, named{"name": name, "context": named{"cluster": "test", "user": name}})
	}
	config["users"], config["contexts"] = all, contexts
	text, _ := json.Marshal(config)
	path := filepath.Join(dir, rand.Text())
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	return path
}

func pemOf(c tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
}

// Allow has the token have these rights only.
func (s *Server) Allow(verbs ...string) { s.set(func() { s.allowed = verbs }) }

// Faults has a function say what happens to each request from now on. It may call other methods.
func (s *Server) Faults(f func(verb string) Fault) { s.set(func() { s.fault = f }) }

// EndWatches ends all watches.
func (s *Server) EndWatches() { s.set(func() { close(s.end); s.end = make(chan struct{}) }) }

// Rotate makes another token, which is in the file of the kubeconfigs from now on. Of those before it the server still knows the last.
func (s *Server) Rotate() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens[len(s.tokens)-1:], rand.Text())
	return os.WriteFile(s.tokenFile(), []byte(s.tokens[len(s.tokens)-1]), 0o600)
}

func (s *Server) tokenFile() string { return filepath.Join(s.dir, "token") }

// Compact forgets all events: a watch cannot begin at an earlier version.
func (s *Server) Compact() { s.set(func() { s.revision++; s.forgot, s.events = s.revision, nil }) }

// Remove deletes all objects, as kubectl delete leases --all does.
func (s *Server) Remove() {
	s.set(func() {
		for _, l := range s.leases {
			s.change("DELETED", l)
		}
	})
}

// Leases returns all objects, sorted by their names.
func (s *Server) Leases() (all []Lease) {
	s.set(func() { all = s.sorted() })
	return all
}

func (s *Server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *Server) sorted() (all []Lease) {
	for _, name := range slices.Sorted(maps.Keys(s.leases)) {
		all = append(all, s.leases[name])
	}
	return all
}

// change writes an object. The caller holds mu.
func (s *Server) change(kind string, l Lease) Lease {
	s.revision++
	l.APIVersion, l.Kind, l.Metadata.Namespace, l.Metadata.ResourceVersion = "coordination.k8s.io/v1", "Lease", Namespace, fmt.Sprint(s.revision)
	if kind == "ADDED" {
		l.Metadata.UID, l.Metadata.CreatedAt = rand.Text(), time.Now().UTC().Format(time.RFC3339)
	}
	s.leases[l.Metadata.Name] = l
	if kind == "DELETED" {
		delete(s.leases, l.Metadata.Name)
	}
	s.events = append(s.events, event{kind, l, s.revision, l.Metadata.Name})
	close(s.news)
	s.news = make(chan struct{})
	return l
}

// status is the answer to a request that is not carried out.
func status(code int, reason, message, kind string) (int, any) {
	return code, map[string]any{
		"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, "details": map[string]any{"kind": kind},
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, known := strings.CutPrefix(r.URL.Path, prefix)
	namespace, name, _ := strings.Cut(path, "/leases")
	name = strings.Trim(name, "/")
	q := r.URL.Query()
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete", http.MethodGet: "get"}[r.Method]
	if verb == "get" && name == "" {
		if verb = "list"; q.Get("watch") == "true" || q.Get("watch") == "1" {
			verb = "watch"
		}
	}
	s.mu.Lock()
	fault, tokens, allowed := s.fault, s.tokens, s.allowed
	s.mu.Unlock()
	f := fault(verb)
	var code int
	var answer any
	switch message := fmt.Sprintf("User %q cannot %s resource %q in API group %q in the namespace %q", "test", verb, "leases", "coordination.k8s.io", namespace); {
	case !known || verb == "" || f.Status == http.StatusNotFound:
		http.NotFound(w, r)
		return
	case !slices.Contains(tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")):
		code, answer = status(http.StatusUnauthorized, "Unauthorized", "Unauthorized", "")
	case !slices.Contains(allowed, verb):
		code, answer = status(http.StatusForbidden, "Forbidden", "leases.coordination.k8s.io "+strconv.Quote(name)+" is forbidden: "+message, "leases")
	case f.Status == http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
		code, answer = status(f.Status, "TooManyRequests", "too many requests, please try again later", "")
	case f.Status != 0:
		code, answer = status(f.Status, "InternalError", "a fault", "")
	case namespace != Namespace && verb == "create":
		code, answer = status(http.StatusNotFound, "NotFound", "namespaces "+strconv.Quote(namespace)+" not found", "namespaces")
	case verb == "watch":
		s.watch(w, r)
		return
	case verb == "list":
		code, answer = s.list(q.Get("fieldSelector"), q.Get("labelSelector"), q.Get("limit"), q.Get("continue"))
	default:
		code, answer = s.single(verb, name, r)
	}
	select {
	case <-time.After(f.Delay):
	case <-r.Context().Done():
	}
	if f.Lose {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

// single carries out a request of one object.
func (s *Server) single(verb, name string, r *http.Request) (int, any) {
	var sent struct {
		Lease
		Preconditions struct{ UID, ResourceVersion string } `json:"preconditions"`
	}
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil && verb != "get" {
		return status(http.StatusBadRequest, "BadRequest", err.Error(), "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m, want := &sent.Metadata, sent.Preconditions
	now, there := s.leases[cmp.Or(name, m.Name)]
	if verb == "update" { // its UID is a precondition, and without one the object may be absent
		want.UID, want.ResourceVersion = m.UID, m.ResourceVersion
		if m.UID == "" && !there {
			return http.StatusCreated, s.change("ADDED", sent.Lease)
		}
		m.UID, m.CreatedAt = now.Metadata.UID, now.Metadata.CreatedAt
	}
	switch quoted := strconv.Quote(cmp.Or(name, m.Name)); {
	case verb == "create" && there:
		return status(http.StatusConflict, "AlreadyExists", "leases.coordination.k8s.io "+quoted+" already exists", "leases")
	case verb == "create" && m.ResourceVersion != "":
		return status(http.StatusBadRequest, "BadRequest", "resourceVersion can not be set for Create requests", "leases")
	case verb == "create":
		return http.StatusCreated, s.change("ADDED", sent.Lease)
	case !there && verb != "update":
		return status(http.StatusNotFound, "NotFound", "leases.coordination.k8s.io "+quoted+" not found", "leases")
	case verb == "get":
		return http.StatusOK, now
	case want.UID != "" && want.UID != now.Metadata.UID, want.ResourceVersion != "" && want.ResourceVersion != now.Metadata.ResourceVersion:
		return status(http.StatusConflict, "Conflict", "Operation cannot be fulfilled on leases.coordination.k8s.io "+quoted, "leases")
	case verb == "update":
		return http.StatusOK, s.change("MODIFIED", sent.Lease)
	}
	return http.StatusOK, s.change("DELETED", now)
}

func (s *Server) list(field, label, limit, cursor string) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most, _ := strconv.Atoi(limit)
	meta, items := Metadata{ResourceVersion: fmt.Sprint(s.revision)}, []Lease{}
	labelKey, labelValue, _ := strings.Cut(label, "=")
	for _, l := range s.sorted() {
		switch {
		case field != "" && field != "metadata.name="+l.Metadata.Name, label != "" && l.Metadata.Labels[labelKey] != labelValue, l.Metadata.Name <= cursor:
		case most > 0 && len(items) == most:
			meta.Continue = items[most-1].Metadata.Name
		default:
			items = append(items, l)
		}
	}
	return http.StatusOK, map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": meta, "items": items}
}

// watch sends what happens to one object after a version, until the client goes or EndWatches is called.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	end := s.end
	s.mu.Unlock()
	q := r.URL.Query()
	from, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	w.Header().Set("Content-Type", "application/json")
	for out := json.NewEncoder(w); ; {
		var send []event
		s.mu.Lock()
		news := s.news
		if from < s.forgot {
			_, gone := status(http.StatusGone, "Expired", "too old resource version", "")
			send, end = []event{{Type: "ERROR", Object: gone}}, make(chan struct{})
			close(end)
		}
		for _, e := range slices.Backward(s.events) {
			if e.revision <= from {
				break
			}
			if "metadata.name="+e.name == q.Get("fieldSelector") {
				send = append(send, e)
			}
		}
		slices.Reverse(send)
		from = max(from, s.revision)
		s.mu.Unlock()
		for _, e := range send {
			_ = out.Encode(e)
		}
		w.(http.Flusher).Flush()
		select {
		case <-news:
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}
