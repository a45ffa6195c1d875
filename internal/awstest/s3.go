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

// S3 starts a service with one bucket.
func S3(t interface{ Cleanup(func()) }, bucket string) *Server {
	s := &Server{name: bucket}
	s.ask = s.s3
	return start(t, s)
}

// BucketURL returns its URL at an address: the Server's, or that of a proxy before it.
func (s *Server) BucketURL(addr string) string {
	return "s3://" + s.name + "/locks?path-style=true&endpoint=http://" + addr
}

// s3 returns what a request asks for.
func (s *Server) s3(r *http.Request) (action string, carryOut func(Fault) answer) {
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	body, err := io.ReadAll(r.Body)
	q := r.URL.Query()
	switch {
	case err != nil:
		panic(http.ErrAbortHandler) // the client has gone
	case r.Method == http.MethodPut && name != "":
		action, carryOut = "s3:PutObject", func(f Fault) answer { return s.put(name, body, r.Header, f) }
	case r.Method == http.MethodGet && name != "":
		action, carryOut = "s3:GetObject", func(Fault) answer { return s.get(name) }
	case r.Method == http.MethodGet && q.Get("list-type") == "2":
		action, carryOut = "s3:ListBucket", func(Fault) answer {
			return s.list(q.Get("prefix"), q.Get("continuation-token"), cmp.Or(q.Get("max-keys"), "1000"))
		}
	case r.Method == http.MethodGet && q.Has("versioning"):
		action, carryOut = "s3:GetBucketVersioning", func(Fault) answer {
			return answer{text: "<VersioningConfiguration>" + s.set["s3:GetBucketVersioning"] + "</VersioningConfiguration>"}
		}
	case r.Method == http.MethodGet && q.Has("lifecycle"):
		action, carryOut = "s3:GetLifecycleConfiguration", func(Fault) answer {
			if rules := s.set["s3:GetLifecycleConfiguration"]; rules != "" {
				return answer{text: "<LifecycleConfiguration>" + rules + "</LifecycleConfiguration>"}
			}
			return answer{http.StatusNotFound, "NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist", ""}
		}
	default:
		panic(fmt.Sprintf("awstest: %s %s", r.Method, r.URL))
	}
	if bucket != s.name {
		carryOut = func(Fault) answer {
			return answer{http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist", ""}
		}
	}
	return action, carryOut
}

func etag(data []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(data)) }

var noSuchKey = answer{http.StatusNotFound, "NoSuchKey", "The specified key does not exist.", ""}

// get answers as S3 does: who may not list a bucket does not learn that an object is absent. The caller holds mu, as of those below.
func (s *Server) get(name string) answer {
	data, is := s.objects[name]
	switch {
	case is:
		return answer{text: string(data), etag: etag(data)}
	case slices.Contains(s.faults, s.Denied("s3:ListBucket")):
		return answer{http.StatusForbidden, "AccessDenied", "not authorized to perform: s3:ListBucket", ""}
	}
	return noSuchKey
}

func (s *Server) put(name string, body []byte, h http.Header, fault Fault) answer {
	old, is := s.objects[name]
	match, none := h.Get("If-Match"), h.Get("If-None-Match")
	if match == "" && none == "" {
		panic("awstest: a write without a condition")
	}
	switch fault.Ignores {
	case "If-Match":
		match = ""
	case "If-None-Match":
		none = ""
	}
	switch {
	case match != "" && !is:
		return noSuchKey
	case match != "" && match != etag(old), none == "*" && is:
		return answer{http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold", ""}
	}
	s.objects[name] = body
	return answer{etag: etag(body)}
}

// list answers with a page. Its token is the last name.
func (s *Server) list(prefix, after, most string) answer {
	var page struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []struct{ Key string }
	}
	limit, _ := strconv.Atoi(most)
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(name, prefix) || name <= after {
			continue
		}
		if len(page.Contents) == limit {
			page.IsTruncated, page.NextContinuationToken = true, page.Contents[limit-1].Key
			break
		}
		page.Contents = append(page.Contents, struct{ Key string }{name})
	}
	text, _ := xml.Marshal(page) // texts
	return answer{text: string(text)}
}
