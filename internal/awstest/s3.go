package awstest

import (
	"cmp"
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Bucket is how a bucket is set up.
type Bucket struct {
	Versioned  bool
	ExpireDays int // of a lifecycle rule. 0: there is none
}

// S3 starts a service with one bucket, for clients with path-style=true.
func S3(t interface{ Cleanup(func()) }, bucket string) *Server {
	return start(t, &Server{name: bucket})
}

// URL returns the URL of a bucket at an address: the Server's, or that of a proxy before it.
func (s *Server) URL(addr string) string {
	if s.table.Key != "" {
		return "dynamodb://" + s.name + "?endpoint=http://" + addr
	}
	return "s3://" + s.name + "/locks?path-style=true&endpoint=http://" + addr
}

// SetBucket sets it up.
func (s *Server) SetBucket(b Bucket) { s.with(func() { s.bucket = b }) }

// Object returns the object of a name. nil: there is none.
func (s *Server) Object(name string) (data []byte) {
	s.with(func() { data = s.objects[name] })
	return data
}

// Names returns those of all objects, or the keys of all items.
func (s *Server) Names() (all []string) {
	s.with(func() {
		all = slices.AppendSeq(slices.Collect(maps.Keys(s.objects)), maps.Keys(s.items))
	})
	slices.Sort(all)
	return all
}

// Lose has the bucket lose an object.
func (s *Server) Lose(name string) {
	s.with(func() { delete(s.objects, name); delete(s.items, name) })
}

func etag(data []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(data)) }

// s3 returns what a request to a bucket asks for.
func (s *Server) s3(r *http.Request) (action string, carryOut func(Fault) answer, err error) {
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	body, err := io.ReadAll(r.Body)
	found := func(f func(Fault) answer) func(Fault) answer {
		return func(fault Fault) answer {
			if bucket != s.name {
				return refusal(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist")
			}
			return f(fault)
		}
	}
	switch {
	case err != nil:
		return "", nil, err
	case r.Method == http.MethodGet && name != "":
		return "s3:GetObject", found(func(Fault) answer { return s.get(name) }), nil
	case r.Method == http.MethodPut && name != "":
		return "s3:PutObject", found(func(f Fault) answer { return s.put(name, body, r.Header, f) }), nil
	case r.Method == http.MethodGet && q.Get("list-type") == "2":
		most, _ := strconv.Atoi(cmp.Or(q.Get("max-keys"), "1000"))
		return "s3:ListBucket", found(func(Fault) answer { return s.list(q.Get("prefix"), q.Get("continuation-token"), most) }), nil
	case r.Method == http.MethodGet && q.Has("versioning"):
		return "s3:GetBucketVersioning", found(func(Fault) answer {
			state := ""
			if s.bucket.Versioned {
				state = "<Status>Enabled</Status>"
			}
			return answer{text: "<VersioningConfiguration>" + state + "</VersioningConfiguration>"}
		}), nil
	case r.Method == http.MethodGet && q.Has("lifecycle"):
		return "s3:GetLifecycleConfiguration", found(func(Fault) answer {
			if s.bucket.ExpireDays == 0 {
				return refusal(http.StatusNotFound, "NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist")
			}
			return answer{text: fmt.Sprintf("<LifecycleConfiguration><Rule><ID>r</ID><Status>Enabled</Status><Filter><Prefix></Prefix></Filter>"+
				"<Expiration><Days>%d</Days></Expiration></Rule></LifecycleConfiguration>", s.bucket.ExpireDays)}
		}), nil
	}
	return "", nil, fmt.Errorf("awstest: %s %s", r.Method, r.URL)
}

// get answers as S3 does: who may not list a bucket does not learn that an object is absent. The caller holds mu, as of those below.
func (s *Server) get(name string) answer {
	data, is := s.objects[name]
	switch {
	case is:
		return answer{text: string(data), etag: etag(data)}
	case s.denied("s3:ListBucket"):
		return refusal(http.StatusForbidden, "AccessDenied", "not authorized to perform: s3:ListBucket")
	}
	return refusal(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
}

func (s *Server) put(name string, body []byte, h http.Header, fault Fault) answer {
	old, is := s.objects[name]
	condition := func(header string) string {
		if fault.Ignores == header {
			return ""
		}
		return h.Get(header)
	}
	switch match, none := condition("If-Match"), condition("If-None-Match"); {
	case h.Get("If-Match") == "" && h.Get("If-None-Match") == "":
		panic("awstest: a write without a condition")
	case match != "" && !is:
		return refusal(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
	case match != "" && match != etag(old), none == "*" && is:
		return refusal(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
	}
	s.objects[name] = body
	s.replaced++
	return answer{etag: etag(body)}
}

// list answers with a page. Its token is the last name.
func (s *Server) list(prefix, after string, most int) answer {
	var page struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []struct{ Key string }
	}
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(name, prefix) || name <= after {
			continue
		}
		if len(page.Contents) == most {
			page.IsTruncated, page.NextContinuationToken = true, page.Contents[most-1].Key
			break
		}
		page.Contents = append(page.Contents, struct{ Key string }{name})
	}
	text, err := xml.Marshal(page)
	if err != nil {
		panic(err)
	}
	return answer{text: string(text)}
}
