package dynamolock

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/awstest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testscope"
)

const key = "shop:product:1"

// on returns a Backend on a table of its own.
func on(t *testing.T) (*awstest.Server, *Backend) {
	s := awstest.DynamoDB(t, "locks")
	return s, open(t, s.TableURL(s.Addr))
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
	s.Fail(awstest.Fault{Action: "dynamodb:PutItem", Times: 1, Loses: true})
	l, err := enter(t, b, key, "a", time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, s.Used()["dynamodb:PutItem"])
	_, err = enter(t, b, key, "b", time.Minute)
	require.ErrorIs(t, err, distributed.ErrHeld)
	require.NoError(t, l.Release(t.Context()))
}

// A table that takes no more for a moment costs a caller that moment.
func TestATableIsThrottled(t *testing.T) {
	t.Parallel()
	s, b := on(t)
	s.Fail(awstest.Fault{Action: "dynamodb:PutItem", Times: 3, Status: http.StatusBadRequest, Code: "ProvisionedThroughputExceededException"})
	l, err := enter(t, b, key, "a", time.Minute)
	require.NoError(t, err)
	require.Equal(t, 4, s.Used()["dynamodb:PutItem"])
	require.NoError(t, l.Release(t.Context()))
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
		{awstest.Fault{Status: http.StatusBadRequest, Code: "ConditionalCheckFailedException"}, register.ErrConflict, ""},
		{awstest.Fault{Status: http.StatusBadRequest, Code: "TransactionConflictException"}, register.ErrConflict, ""},
		{awstest.Fault{Status: http.StatusBadRequest, Code: "ReplicatedWriteConflictException"}, register.ErrConflict, ""},
		{awstest.Fault{Status: http.StatusBadRequest, Code: "ThrottlingException"}, register.ErrBusy, "ThrottlingException"},
		{awstest.Fault{Status: http.StatusInternalServerError, Code: "InternalServerError"}, nil, "InternalServerError"},
		{awstest.Fault{Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable"}, nil, "503"},
		{s.Denied("dynamodb:PutItem"), distributed.ErrRefused, "the user lacks the right dynamodb:PutItem"},
		{awstest.Fault{Status: http.StatusBadRequest, Code: "UnrecognizedClientException"}, distributed.ErrRefused, "UnrecognizedClientException"},
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
			require.ErrorIs(t, err, distributed.ErrRefused, c.fault.Code)
		} else {
			require.NotErrorIs(t, err, distributed.ErrRefused, c.fault.Code)
			require.NotErrorIs(t, err, distributed.ErrUnreached, c.fault.Code)
		}
	}
	s.Fail()
	err := put(open(t, strings.Replace(s.TableURL(s.Addr), "locks", "none", 1)))
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "ResourceNotFoundException")
	require.ErrorIs(t, put(open(t, s.TableURL("127.0.0.1:1"))), distributed.ErrUnreached)
}

// What DynamoDB leaves out was not read, and what it has not is absent. A key may be asked for twice.
func TestManyItems(t *testing.T) {
	t.Parallel()
	s, b := on(t)
	v, err := b.store.Put(t.Context(), "a", []byte(`{"a":1}`), "", time.Hour)
	require.NoError(t, err)
	want := map[string]register.Document{"a": {Data: []byte(`{"a":1}`), Version: v}, "b": {}}
	docs, err := b.store.GetMany(t.Context(), []string{"a", "b", "a"})
	require.NoError(t, err)
	require.Equal(t, want, docs)
	s.Fail(awstest.Fault{Rests: true})
	docs, err = b.store.GetMany(t.Context(), []string{"a", "b"})
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	delete(want, "b")
	require.Equal(t, want, docs)
}

// A table that cannot keep locks is refused by name.
func TestTables(t *testing.T) {
	t.Parallel()
	s, b := on(t)
	const replicas = `,"Replicas":[{"RegionName":"eu-west-1"}]`
	for table, want := range map[string]string{
		awstest.Table("key", ""): "",
		awstest.Table("key", replicas+`,"MultiRegionConsistency":"STRONG"`):                                 "",
		awstest.Table("key", replicas):                                                                      "it is a global table, where the last of two writers wins",
		awstest.Table("LockID", ""):                                                                         "want the partition key key of type S, and no sort key",
		strings.Replace(awstest.Table("key", ""), `:"S"`, `:"N"`, 1):                                        "want the partition key key of type S, and no sort key",
		strings.Replace(awstest.Table("key", ""), `}]`, `},{"AttributeName":"sort","KeyType":"RANGE"}]`, 1): "and no sort key",
	} {
		s.Set("dynamodb:DescribeTable", table)
		err := b.Ping(t.Context())
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, distributed.ErrRefused, table)
		require.ErrorContains(t, err, "the table locks cannot keep locks: ")
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, s.Names())
}

// Locks use the rights that the documentation lists, and no others. One that is missing is named.
func TestRights(t *testing.T) {
	t.Parallel()
	s, b := on(t)
	l, err := enter(t, b, key, "a", time.Second)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Used()["dynamodb:BatchGetItem"] > 0 }, time.Minute, time.Millisecond)
	for _, action := range []string{"dynamodb:DescribeTable", "dynamodb:PutItem", "dynamodb:GetItem"} {
		require.NoError(t, b.Ping(t.Context()))
		s.Fail(s.Denied(action))
		err := b.Ping(t.Context())
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, "the user lacks the right "+action)
		s.Fail()
	}
	_, _, err = b.List(t.Context(), "shop:", "", 10)
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	var used []string
	for action := range s.Used() {
		used = append(used, strings.TrimPrefix(action, "dynamodb:"))
	}
	require.ElementsMatch(t, []string{"DescribeTable", "GetItem", "BatchGetItem", "PutItem", "Scan"}, used)
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

// Whoever deletes an item deletes its lock. The holder finds that out, and the fences of the next are above its.
func TestAnItemIsDeleted(t *testing.T) {
	t.Parallel()
	s, b := on(t)
	l, err := enter(t, b, key, "a", 2*time.Second)
	require.NoError(t, err)
	before := testlocker.Fence(t, l)
	s.Lose(key)
	testlocker.Lost(t, l)
	next, err := enter(t, b, key, "b", 2*time.Second)
	require.NoError(t, err)
	require.Greater(t, testlocker.Fence(t, next), before)
	require.NoError(t, next.Release(t.Context()))
}

// A list goes on behind pages whose items are all of other prefixes.
func TestList(t *testing.T) {
	t.Parallel()
	_, b := on(t)
	testlocker.Keys(t, b, "b", "b:a:1", "b:b:1", "b:b:z", "b:b:ü", "b:b: ", "b:b:\x00")
}

func TestBadInput(t *testing.T) {
	for url, want := range map[string]string{
		"http://h":                           "not the URL of a table",
		"dynamodb://":                        "not the URL of a table",
		"dynamodb://locks/more":              "not the URL of a table",
		"dynamodb://id:secret@locks":         "without a user",
		"dynamodb://l":                       `the table "l": want 3 to 255`,
		"dynamodb://locks?create=true":       `the parameter "create" of the URL: want region, endpoint, once each`,
		"dynamodb://locks?endpoint=h:1":      "the parameter endpoint of the URL: want https://host:port",
		"dynamodb://locks?region=a&region=b": `the parameter "region"`,
	} {
		b, err := Open(url)
		require.Error(t, err, url)
		require.Nil(t, b)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := New(nil, "locks")
	require.EqualError(t, err, "dynamolock: the client is nil")
	t.Setenv("AWS_REGION", "")
	_, err = Open("dynamodb://locks")
	require.EqualError(t, err, "dynamolock: no region: want region= in the URL, or AWS_REGION")
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
	s := awstest.DynamoDB(t, "locks")
	testlocker.HotKey(t, func() distributed.Backend { return open(t, s.TableURL(s.Addr)) })
}
