package s3lock

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/awstest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

const key = "shop:product:1"

// on returns a Backend on a bucket of its own.
func on(t *testing.T) (*awstest.Server, *Backend) {
	s := awstest.S3(t, "bucket")
	return s, open(t, s.BucketURL(s.Addr))
}

func enter(t *testing.T, b *Backend, key, instance string, ttl time.Duration) (distributed.Lease, error) {
	t.Helper()
	l, _, err := b.Enter(t.Context(), distributed.Request{Key: key, Instance: instance, TTL: ttl, NoWait: true})
	return l, err
}

// A write whose answer is lost is not sent twice. It is found, and excludes others.
func TestAnAnswerIsLost(t *testing.T) {
	t.Parallel()
	s, b := on(t)
	for _, lost := range []awstest.Fault{{Loses: true}, {Status: http.StatusServiceUnavailable, Code: "SlowDown"}} {
		before := s.Used()["s3:PutObject"]
		lost.Action, lost.Times = "s3:PutObject", 1
		s.Fail(lost)
		l, err := enter(t, b, key, "a", time.Minute)
		require.NoError(t, err)
		want := 1
		if !lost.Loses { // then it was not carried out
			want = 2
		}
		require.Equal(t, want, s.Used()["s3:PutObject"]-before)
		_, err = enter(t, b, key, "b", time.Minute)
		require.ErrorIs(t, err, distributed.ErrHeld)
		require.NoError(t, l.Release(t.Context()))
	}
}

// S3 gives equal contents the same ETag. A content that is written again is another version all the same.
func TestNoVersionComesBack(t *testing.T) {
	t.Parallel()
	_, b := on(t)
	var versions []register.Version
	last := register.Version("")
	for _, data := range []string{`{"a":1}`, `{"b":1}`, `{"a":1}`} {
		v, err := b.store.Put(t.Context(), key, []byte(data), last, time.Hour)
		require.NoError(t, err)
		require.NotContains(t, versions, v)
		versions, last = append(versions, v), v
	}
	_, err := b.store.Put(t.Context(), key, []byte(`{"c":1}`), versions[0], time.Hour)
	require.ErrorIs(t, err, register.ErrConflict)
	d, err := b.store.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, register.Document{Data: []byte(`{"a":1}`), Version: last}, d)
}

// A bucket that takes the conditions and ignores them is refused by name, also where only one of them is ignored.
func TestABucketThatDoesNotCompare(t *testing.T) {
	t.Parallel()
	s, b := on(t)
	for range 2 { // with an object of the trial, and without
		require.NoError(t, b.Ping(t.Context()))
	}
	for _, header := range []string{"If-Match", "If-None-Match"} {
		s.Fail(awstest.Fault{Action: "s3:PutObject", Ignores: header})
		err := b.Ping(t.Context())
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, "the bucket bucket ignores "+header+": two holders would be possible")
	}
	require.Equal(t, []string{"locks/wllock-trial.json"}, s.Names())
}

// What an error says of a write decides what package register does next.
func TestErrors(t *testing.T) {
	t.Parallel()
	s, b := on(t)
	put := func(b *Backend) error {
		_, err := b.store.Put(t.Context(), key, []byte(`{}`), "", time.Hour)
		return err
	}
	for _, c := range []struct {
		fault    awstest.Fault
		is       error // nil: the write may have been carried out
		contains string
	}{
		{awstest.Fault{Status: http.StatusConflict, Code: "ConditionalRequestConflict"}, register.ErrConflict, ""},
		{awstest.Fault{Status: http.StatusPreconditionFailed, Code: "PreconditionFailed"}, register.ErrConflict, ""},
		{awstest.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}, nil, "SlowDown"},
		{awstest.Fault{Status: http.StatusInternalServerError, Code: "InternalError"}, nil, "InternalError"},
		{awstest.Fault{Status: http.StatusTooManyRequests, Code: "ServiceUnavailable"}, nil, "429"},
		{awstest.Fault{Status: http.StatusConflict, Code: "OperationAborted"}, distributed.ErrRefused, "OperationAborted"},
		{awstest.Fault{Status: http.StatusMovedPermanently, Code: "PermanentRedirect"}, distributed.ErrRefused, "PermanentRedirect"},
		{s.Denied("s3:PutObject"), distributed.ErrRefused, "the user lacks the right s3:PutObject"},
		{awstest.Fault{Status: http.StatusForbidden, Code: "InvalidAccessKeyId"}, distributed.ErrRefused, "InvalidAccessKeyId"},
		{awstest.Fault{Loses: true}, nil, "EOF"},
	} {
		s.Fail(c.fault)
		err := put(b)
		if errors.Is(c.is, register.ErrConflict) {
			require.ErrorIs(t, err, c.is, c.fault.Code)
			continue
		}
		require.ErrorIs(t, err, distributed.ErrUnavailable, c.fault.Code)
		require.ErrorContains(t, err, c.contains)
		require.NotErrorIs(t, err, register.ErrConflict)
		if c.is != nil {
			require.ErrorIs(t, err, c.is, c.fault.Code)
		} else {
			require.NotErrorIs(t, err, distributed.ErrRefused, c.fault.Code)
			require.NotErrorIs(t, err, distributed.ErrUnreached, c.fault.Code)
		}
	}
	other := open(t, strings.Replace(s.BucketURL(s.Addr), "s3://bucket/", "s3://none/", 1))
	s.Fail()
	err := put(other)
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "NoSuchBucket")
	require.ErrorIs(t, put(open(t, s.BucketURL("127.0.0.1:1"))), distributed.ErrUnreached)
}

// Locks use the rights that the documentation lists, and no others. One that is missing is named.
func TestRights(t *testing.T) {
	t.Parallel()
	s, b := on(t)
	require.NoError(t, b.Ping(t.Context()))
	l, err := enter(t, b, key, "a", time.Minute)
	require.NoError(t, err)
	_, _, err = b.List(t.Context(), "shop:", "", 10)
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	var used []string
	for action := range s.Used() {
		used = append(used, action)
	}
	require.ElementsMatch(t, []string{"s3:GetObject", "s3:PutObject", "s3:ListBucket"}, used)
	for _, action := range used {
		s.Fail(s.Denied(action))
		_, err := b.Inspect(t.Context(), "shop:product:none")
		if action == "s3:PutObject" {
			err = b.Ping(t.Context())
		}
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, action)
	}
}

// A service that is silent is not waited for.
func TestASilentService(t *testing.T) {
	t.Parallel()
	s, b := on(t)
	s.Fail(awstest.Fault{Delay: exchangeTime + time.Second})
	_, err := b.store.Get(context.WithoutCancel(t.Context()), key)
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Whoever removes an object removes its lock. The holder finds that out, and the fences of the next are above its.
func TestAnObjectIsRemoved(t *testing.T) {
	t.Parallel()
	s, b := on(t)
	l, err := enter(t, b, key, "a", 2*time.Second)
	require.NoError(t, err)
	before := testlocker.Fence(t, l)
	s.Lose(b.store.name(key))
	testlocker.Lost(t, l)
	next, err := enter(t, b, key, "b", 2*time.Second)
	require.NoError(t, err)
	require.Greater(t, testlocker.Fence(t, next), before)
	require.NoError(t, next.Release(t.Context()))
}

// An object of somebody else is refused, and left alone.
func TestAForeignObject(t *testing.T) {
	t.Parallel()
	_, b := on(t)
	_, err := b.Client().PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: &b.store.bucket, Key: aws.String(b.store.name(key)), Body: strings.NewReader("theirs"), IfNoneMatch: aws.String("*"),
	})
	require.NoError(t, err)
	_, err = enter(t, b, key, "a", time.Minute)
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "the key holds 6 bytes that are not a lock")
}

// Keys may have any characters, and be longer than a name. Each has an object of its own, and can be listed, page by page.
func TestNames(t *testing.T) {
	t.Parallel()
	s, b := on(t)
	long := "b:b:" + strings.Repeat("ü", 300)
	testlocker.Keys(t, b, "b", "b:b:c", "b:b:c.d", "b:b:.", "b:b:/", "b:b: ", "b:b:+", "b:b:!20", "b:b:%2E", "b:b:ü\x00", long, long+"x")
	require.Contains(t, s.Names(), "locks/b:b:c.json")
	for _, name := range s.Names() {
		require.Regexp(t, `^locks/[A-Za-z0-9:._!-]{1,250}$`, name)
	}
}

func TestBadInput(t *testing.T) {
	for url, want := range map[string]string{
		"http://h":                        "not the URL of a bucket",
		"s3://":                           "not the URL of a bucket",
		"s3://id:secret@bucket":           "without a user",
		"s3://b":                          `the bucket "b"`,
		"s3://bucket/a%20b":               `folder "a b/"`,
		"s3://bucket?what=ever":           `the parameter "what" of the URL: want region, endpoint, path-style, once each`,
		"s3://bucket?region=":             `the parameter "region"`,
		"s3://bucket?region=a&region=b":   `the parameter "region"`,
		"s3://bucket?path-style=maybe":    `path-style="maybe": want true or false`,
		"s3://bucket?endpoint=minio:9000": "the parameter endpoint of the URL: want https://host:port",
		"s3://bucket?endpoint=http://id:secret%40host": "the parameter endpoint of the URL: want https://host:port, without a user",
	} {
		b, err := Open(url)
		require.Error(t, err, url)
		require.Nil(t, b)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := New(nil, "bucket", "")
	require.EqualError(t, err, "s3lock: the client is nil")
	t.Setenv("AWS_REGION", "")
	_, err = Open("s3://bucket")
	require.EqualError(t, err, "s3lock: no region: want region= in the URL, or AWS_REGION")
}

// Who has no credentials learns that at once.
func TestNoCredentials(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	_, b := on(t)
	err := b.Ping(t.Context())
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.ErrorContains(t, err, "credentials")
}

// Tenures serve many times as many callers of a hot key as a turn for each through the service.
func TestHotKey(t *testing.T) {
	testscope.Long(t, "measures")
	s := awstest.S3(t, "bucket")
	testlocker.HotKey(t, func() distributed.Backend { return open(t, s.BucketURL(s.Addr)) })
}
