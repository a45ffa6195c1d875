package s3lock

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/keyless"
)

// Backend is the distributed tier on a bucket. It is safe for concurrent use. Make one per process, for all its Lockers.
type Backend struct {
	*register.Backend
	store *store
}

// Format is the version of the objects. A later version has its number in them, and is refused.
const Format = register.Format

// Client returns the client of the bucket.
func (b *Backend) Client() *s3.Client { return b.store.client }

// Close implements distributed.Backend.
func (b *Backend) Close() error {
	defer b.store.idle()
	return b.Backend.Close()
}

// store is a bucket as a register.Store.
type store struct {
	client *s3.Client
	bucket string
	folder string // begins the names of all objects
	idle   func() // closes the connections of a client of our own
}

var _, _ = register.Lister((*store)(nil)), register.Pinger((*store)(nil))

// exchangeTime bounds an exchange with a service that is silent. It goes on when its caller has left: a write that is broken off may have been
// carried out.
const exchangeTime = 2 * time.Second

// once has the client send no request twice. If the first copy of a conditional write was carried out and its answer lost, the second is
// answered 412, as if nothing had been written. So an answer that is lost is an error, and package register looks for its claim by the id.
func once(o *s3.Options) { o.Retryer = aws.NopRetryer{} }

// object is what a bucket has under a name.
//
// Its ETag is the Version. S3 makes that of the content alone, and a lock returns to an earlier content: when a process that waits leaves, for one.
// A write that was meant for the earlier one must not find its version again. So each write has a random number.
type object struct {
	Key      string          `json:"key"`   // its name may be a part of it only
	Write    string          `json:"write"` // random
	Document json.RawMessage `json:"document"`
}

// mostName is how long the names of keys are. Those that are longer end with a hash, since some services allow 255 bytes.
const mostName = 180

// names has a key's letters, digits and colons as they are, and !2F for another character: S3's rules call the percent sign unsafe.
var names = strings.NewReplacer("%3A", ":", "+", "!20", "%", "!")

// name is the object's of a key.
func (s *store) name(key string) string {
	name := names.Replace(url.QueryEscape(key))
	if len(name) > mostName {
		name = fmt.Sprintf("%s!%x", name[:mostName], sha256.Sum256([]byte(key)))
	}
	return s.folder + name + ".json"
}

// Get implements register.Store.
func (s *store) Get(ctx context.Context, key string) (register.Document, error) {
	d, err := s.read(ctx, s.name(key))
	return d.Document, err
}

// read returns the object of this name.
func (s *store) read(ctx context.Context, name string) (found register.Keyed, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
	defer cancel()
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &name}, once)
	if err != nil {
		if err = failed(err, "s3:GetObject, and s3:ListBucket for what is absent"); errors.Is(err, register.ErrConflict) { // it is
			err = nil
		}
		return found, err
	}
	defer func() { _ = out.Body.Close() }()
	data, err := io.ReadAll(out.Body)
	if err != nil {
		return found, failed(err, "")
	}
	var o object
	if json.Unmarshal(data, &o) != nil || o.Document == nil {
		o.Document = data // which is refused
	}
	return register.Keyed{Key: o.Key, Document: register.Document{Data: o.Document, Version: register.Version(aws.ToString(out.ETag))}}, nil
}

// Put implements register.Store. No object is deleted by itself: a bucket has rules for that, which count in days.
func (s *store) Put(ctx context.Context, key string, data []byte, from register.Version, _ time.Duration) (register.Version, error) {
	body, _ := json.Marshal(object{key, rand.Text(), data}) // a document is JSON
	in := &s3.PutObjectInput{Bucket: &s.bucket, Key: aws.String(s.name(key)), Body: bytes.NewReader(body), ContentType: aws.String("application/json")}
	if from == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = aws.String(string(from))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
	defer cancel()
	out, err := s.client.PutObject(ctx, in, once)
	if err != nil {
		return "", failed(err, "s3:PutObject, and s3:GetObject for If-Match")
	}
	return register.Version(aws.ToString(out.ETag)), nil
}

// trialKey is no lock's: a key of a caller begins with the name of a system. noVersion is none of an object's.
const trialKey, noVersion = "wllock-trial", `"00000000000000000000000000000000"`

// Ping implements register.Pinger. It tries that the bucket compares: services that are like S3 may take the conditions, and ignore them.
func (s *store) Ping(ctx context.Context) error {
	if _, err := s.Put(ctx, trialKey, []byte(`{}`), "", 0); err != nil && !errors.Is(err, register.ErrConflict) {
		return err
	}
	for header, from := range map[string]register.Version{"If-None-Match": "", "If-Match": noVersion} {
		switch _, err := s.Put(ctx, trialKey, []byte(`{}`), from, 0); {
		case err == nil:
			why := keyless.Errorf("the bucket %s ignores %s: two holders would be possible", s.bucket, header)
			return distributed.Unavailable("s3lock", why, distributed.ErrRefused)
		case !errors.Is(err, register.ErrConflict):
			return err
		}
	}
	_, err := s.Get(ctx, trialKey)
	return err
}

// List implements register.Lister. The cursor is the service's. The objects of a page are read at a time, so it has 16 at most.
func (s *store) List(ctx context.Context, prefix, cursor string, limit int) ([]register.Keyed, string, error) {
	listing, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
	defer cancel()
	begin := strings.TrimSuffix(s.name(prefix), ".json")
	in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &begin, MaxKeys: aws.Int32(int32(min(limit, 16)))}
	if cursor != "" {
		in.ContinuationToken = &cursor
	}
	out, err := s.client.ListObjectsV2(listing, in, once)
	if err != nil {
		return nil, "", failed(err, "s3:ListBucket")
	}
	page, errs := make([]register.Keyed, len(out.Contents)), make([]error, len(out.Contents))
	var read sync.WaitGroup
	for i, o := range out.Contents {
		read.Go(func() { page[i], errs[i] = s.read(ctx, aws.ToString(o.Key)) })
	}
	read.Wait()
	return page, aws.ToString(out.NextContinuationToken), errors.Join(errs...)
}

// failed says what an error of the client's means to a caller. rights are those that the request needs.
func failed(err error, rights string) error {
	var answer *smithyhttp.ResponseError
	var api smithy.APIError = &smithy.GenericAPIError{}
	var network *net.OpError
	status := 0
	if errors.As(err, &answer) {
		status = answer.HTTPStatusCode()
	}
	_ = errors.As(err, &api)
	switch code := api.ErrorCode(); {
	// 409 says that another write, or a delete, was under way, and that this one has to be sent again. 404, that the object has gone.
	case status == http.StatusPreconditionFailed, code == "ConditionalRequestConflict", code == "NoSuchKey":
		return register.ErrConflict
	case code == "AccessDenied":
		return distributed.Unavailable("s3lock", keyless.Errorf("the user lacks the right %s: %w", rights, err), distributed.ErrRefused)
	case status >= http.StatusMultipleChoices && status < http.StatusInternalServerError && status != http.StatusTooManyRequests: // SlowDown is 503
		return distributed.Unavailable("s3lock", err, distributed.ErrRefused)
	case errors.As(err, &network) && network.Op == "dial":
		return distributed.Unavailable("s3lock", err, distributed.ErrUnreached)
	}
	return distributed.Unavailable("s3lock", err)
}
