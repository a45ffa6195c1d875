package dynamolock

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/keyless"
)

// Backend is the distributed tier on a table. It is safe for concurrent use. Make one per process, for all its Lockers.
type Backend struct {
	*register.Backend
	store *store
}

// Format is the version of the items. A later version has its number in them, and is refused.
const Format = register.Format

// Client returns the client of the table.
func (b *Backend) Client() *dynamodb.Client { return b.store.client }

// Close implements distributed.Backend.
func (b *Backend) Close() error {
	defer b.store.idle()
	return b.Backend.Close()
}

// store is a table as a register.Store.
type store struct {
	table  string
	client *dynamodb.Client
	idle   func() // closes the connections of a client of our own
}

var _, _, _ = register.Many((*store)(nil)), register.Lister((*store)(nil)), register.Pinger((*store)(nil))

// The attributes of an item: the lock's key, a version, the document, and the time in seconds since 1970 when it may be forgotten.
const keyName, versionName, documentName, expiresName = "key", "version", "document", "expires"

// exchangeTime bounds an exchange with a service that is silent. It goes on when its caller has left: a write that is broken off may have been
// carried out.
const exchangeTime = 2 * time.Second

// once has the client send no request twice. If the first copy of a conditional write was carried out and its answer lost, the second finds
// another version, as if nothing had been written. So an answer that is lost is an error, and package register looks for its claim by the id.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

type item = map[string]types.AttributeValue

func text(value string) types.AttributeValue { return &types.AttributeValueMemberS{Value: value} }

func textOf(i item, name string) string {
	if s, ok := i[name].(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

func documentOf(i item) register.Document {
	return register.Document{Data: []byte(textOf(i, documentName)), Version: register.Version(textOf(i, versionName))}
}

// Get implements register.Store.
func (s *store) Get(ctx context.Context, key string) (register.Document, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
	defer cancel()
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.table, Key: item{keyName: text(key)}, ConsistentRead: aws.Bool(true)}, once)
	if err != nil {
		return register.Document{}, failed(err, "dynamodb:GetItem")
	}
	return documentOf(out.Item), nil
}

// GetMany implements register.Many. What DynamoDB has left out is read the next time.
func (s *store) GetMany(ctx context.Context, keys []string) (map[string]register.Document, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
	defer cancel()
	asked, docs := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}, map[string]register.Document{}
	for _, key := range keys {
		if _, twice := docs[key]; !twice { // which DynamoDB refuses
			docs[key] = register.Document{}
			asked.Keys = append(asked.Keys, item{keyName: text(key)})
		}
	}
	out, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{s.table: asked}}, once)
	if err != nil {
		return nil, failed(err, "dynamodb:BatchGetItem")
	}
	for _, i := range out.Responses[s.table] {
		docs[textOf(i, keyName)] = documentOf(i)
	}
	for _, k := range out.UnprocessedKeys[s.table].Keys {
		delete(docs, textOf(k, keyName))
		err = distributed.Unavailable("dynamolock", keyless.Errorf("items were left out, as when the table takes no more"))
	}
	return docs, err
}

// Put implements register.Store. A version is random, since an item that has expired is made anew.
func (s *store) Put(ctx context.Context, key string, data []byte, from register.Version, keep time.Duration) (register.Version, error) {
	version := rand.Text()
	in := &dynamodb.PutItemInput{TableName: &s.table, Item: item{
		keyName: text(key), versionName: text(version), documentName: text(string(data)),
		expiresName: &types.AttributeValueMemberN{Value: strconv.FormatInt(time.Now().Add(keep).Unix()+1, 10)},
	}}
	if from == "" {
		in.ConditionExpression, in.ExpressionAttributeNames = aws.String("attribute_not_exists(#key)"), map[string]string{"#key": keyName}
	} else {
		in.ConditionExpression, in.ExpressionAttributeNames = aws.String("#version = :from"), map[string]string{"#version": versionName}
		in.ExpressionAttributeValues = item{":from": text(string(from))}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
	defer cancel()
	if _, err := s.client.PutItem(ctx, in, once); err != nil {
		return "", failed(err, "dynamodb:PutItem")
	}
	return register.Version(version), nil
}

// List implements register.Lister. DynamoDB reads limit items, and leaves out those of other prefixes. The cursor is the last key that was read.
func (s *store) List(ctx context.Context, prefix, cursor string, limit int) (page []register.Keyed, next string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
	defer cancel()
	in := &dynamodb.ScanInput{
		TableName: &s.table, ConsistentRead: aws.Bool(true), Limit: aws.Int32(int32(limit)), FilterExpression: aws.String("begins_with(#key, :prefix)"),
		ExpressionAttributeNames: map[string]string{"#key": keyName}, ExpressionAttributeValues: item{":prefix": text(prefix)},
	}
	if cursor != "" {
		in.ExclusiveStartKey = item{keyName: text(cursor)}
	}
	out, err := s.client.Scan(ctx, in, once)
	if err != nil {
		return nil, "", failed(err, "dynamodb:Scan")
	}
	for _, i := range out.Items {
		page = append(page, register.Keyed{Key: textOf(i, keyName), Document: documentOf(i)})
	}
	return page, textOf(out.LastEvaluatedKey, keyName), nil
}

// Ping implements register.Pinger. It looks at the table, and tries a write that conflicts, so that nothing is written.
func (s *store) Ping(ctx context.Context) error {
	describing, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
	defer cancel()
	out, err := s.client.DescribeTable(describing, &dynamodb.DescribeTableInput{TableName: &s.table}, once)
	if err != nil {
		return failed(err, "dynamodb:DescribeTable")
	}
	t, why := out.Table, ""
	isKey := func(a types.AttributeDefinition) bool {
		return aws.ToString(a.AttributeName) == keyName && a.AttributeType == types.ScalarAttributeTypeS
	}
	switch {
	case len(t.KeySchema) != 1 || aws.ToString(t.KeySchema[0].AttributeName) != keyName || !slices.ContainsFunc(t.AttributeDefinitions, isKey):
		why = "want the partition key " + keyName + " of type S, and no sort key"
	case len(t.Replicas) > 0 && t.MultiRegionConsistency != types.MultiRegionConsistencyStrong:
		why = "it is a global table, where the last of two writers wins: want no replicas, or multi-Region strong consistency"
	}
	if why != "" {
		return distributed.Unavailable("dynamolock", keyless.Errorf("the table %s cannot keep locks: %s", s.table, why), distributed.ErrRefused)
	}
	if _, err = s.Put(ctx, trialKey, []byte(`{}`), "none", 0); errors.Is(err, register.ErrConflict) {
		_, err = s.Get(ctx, trialKey)
	}
	return err
}

// trialKey is no lock's: a key of a caller begins with the name of a system.
const trialKey = "wllock-trial"

// failed says what an error of the client's means to a caller. right is that which the request needs.
func failed(err error, right string) error {
	var answer *smithyhttp.ResponseError
	var api smithy.APIError = &smithy.GenericAPIError{}
	var network *net.OpError
	_ = errors.As(err, &api)
	switch api.ErrorCode() {
	case "ConditionalCheckFailedException", "TransactionConflictException", "ReplicatedWriteConflictException": // the two others: another write is under way
		return register.ErrConflict
	case "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "RequestThrottled":
		return distributed.Unavailable("dynamolock", err, distributed.ErrRefused, register.ErrBusy)
	case "AccessDeniedException":
		return distributed.Unavailable("dynamolock", keyless.Errorf("the user lacks the right %s: %w", right, err), distributed.ErrRefused)
	}
	switch {
	case errors.As(err, &answer) && answer.HTTPStatusCode() >= http.StatusMultipleChoices && answer.HTTPStatusCode() < http.StatusInternalServerError:
		return distributed.Unavailable("dynamolock", err, distributed.ErrRefused)
	case errors.As(err, &network) && network.Op == "dial":
		return distributed.Unavailable("dynamolock", err, distributed.ErrUnreached)
	}
	return distributed.Unavailable("dynamolock", err)
}
