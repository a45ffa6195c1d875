package awstest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Table is how a table is set up.
type Table struct {
	Key      string   // the name of its hash key
	Range    string   // of its range key. "": none
	Replicas []string // regions
	Strong   bool     // the replicas are
	TTL      string   // the attribute that ends items. "": none
}

// DynamoDB starts a service with one table, whose hash key is key.
func DynamoDB(t interface{ Cleanup(func()) }, table string) *Server {
	return start(t, &Server{name: table, table: Table{Key: "key"}})
}

// SetTable sets it up.
func (s *Server) SetTable(t Table) { s.with(func() { s.table = t }) }

// Item returns the item of a key. nil: there is none.
func (s *Server) Item(key string) (item map[string]any) {
	s.with(func() { item = maps.Clone(s.items[key]) })
	return item
}

// request is what locks ask of a table.
type request struct {
	TableName                 string
	ConsistentRead            bool
	Key                       map[string]any
	Item                      map[string]any
	ConditionExpression       string
	FilterExpression          string
	ExpressionAttributeNames  map[string]string
	ExpressionAttributeValues map[string]any
	ExclusiveStartKey         map[string]any
	Limit                     int
	RequestItems              map[string]struct {
		ConsistentRead bool
		Keys           []map[string]any
	}
}

// text returns an attribute of type S, as its value is.
func text(attribute any) string {
	a, _ := attribute.(map[string]any)
	value, _ := a["S"].(string)
	return value
}

func invalid(format string, args ...any) answer {
	return refusal(http.StatusBadRequest, "ValidationException", fmt.Sprintf(format, args...))
}

// dynamo returns what a request to a table asks for.
func (s *Server) dynamo(r *http.Request) (action string, carryOut func(Fault) answer, err error) {
	var in request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return "", nil, err
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	do := map[string]func(request, Fault) any{
		"GetItem": s.getItem, "PutItem": s.putItem, "BatchGetItem": s.batchGetItem, "Scan": s.scan, "DescribeTable": s.describe, "DescribeTimeToLive": s.describeTTL,
	}[operation]
	if do == nil {
		return "", nil, fmt.Errorf("awstest: %s", operation)
	}
	return "dynamodb:" + operation, func(f Fault) answer {
		if _, is := in.RequestItems[s.name]; !is && in.TableName != s.name {
			return refusal(http.StatusBadRequest, "ResourceNotFoundException", "Requested resource not found")
		}
		out := do(in, f)
		if a, is := out.(answer); is {
			return a
		}
		body, err := json.Marshal(out)
		if err != nil {
			panic(err)
		}
		return answer{text: string(body)}
	}, nil
}

// keyOf returns the value of the hash key. The caller holds mu, as of those below.
func (s *Server) keyOf(in map[string]any) (string, bool) {
	_, ranged := in[s.table.Range]
	return text(in[s.table.Key]), text(in[s.table.Key]) != "" && ranged == (s.table.Range != "")
}

func (s *Server) getItem(in request, _ Fault) any {
	key, ok := s.keyOf(in.Key)
	switch {
	case !ok:
		return invalid("The provided key element does not match the schema")
	case !in.ConsistentRead:
		panic("awstest: a read that is not consistent")
	}
	if item := s.items[key]; item != nil {
		return map[string]any{"Item": item}
	}
	return map[string]any{}
}

func (s *Server) putItem(in request, _ Fault) any {
	key, ok := s.keyOf(in.Item)
	if !ok {
		return invalid("One or more parameter values were invalid: Missing the key in the item")
	}
	item := s.items[key]
	var holds bool
	switch name, value, compares := strings.Cut(in.ConditionExpression, " = "); {
	case compares:
		holds = item != nil && text(item[in.ExpressionAttributeNames[name]]) == text(in.ExpressionAttributeValues[value])
	case in.ConditionExpression == "attribute_not_exists(#key)" && in.ExpressionAttributeNames["#key"] == s.table.Key:
		holds = item == nil
	default:
		panic("awstest: the condition " + in.ConditionExpression)
	}
	if !holds {
		return refusal(http.StatusBadRequest, "ConditionalCheckFailedException", "The conditional request failed")
	}
	s.items[key] = in.Item
	s.replaced++
	return map[string]any{}
}

func (s *Server) batchGetItem(in request, fault Fault) any {
	asked := in.RequestItems[s.name]
	if !asked.ConsistentRead {
		panic("awstest: a read that is not consistent")
	}
	if len(asked.Keys) > 100 {
		return invalid("Too many items requested for the BatchGetItem call")
	}
	found, seen := []any{}, map[string]bool{}
	unread := map[string]any{}
	for i, k := range asked.Keys {
		key, ok := s.keyOf(k)
		if !ok || seen[key] {
			return invalid("Provided list of item keys contains duplicates")
		}
		seen[key] = true
		if i > 0 && fault.Rests {
			unread[s.name] = map[string]any{"ConsistentRead": true, "Keys": asked.Keys[i:]}
			break
		}
		if item := s.items[key]; item != nil {
			found = append(found, item)
		}
	}
	return map[string]any{"Responses": map[string]any{s.name: found}, "UnprocessedKeys": unread}
}

// scan reads Limit items, and then leaves out those that the filter is not of.
func (s *Server) scan(in request, _ Fault) any {
	name, _ := strings.CutPrefix(in.FilterExpression, "begins_with(")
	if name != "#key, :prefix)" || in.ExpressionAttributeNames["#key"] != s.table.Key || !in.ConsistentRead {
		panic("awstest: the scan " + in.FilterExpression)
	}
	found, out := []any{}, map[string]any{}
	read := 0
	for _, key := range slices.Sorted(maps.Keys(s.items)) {
		if key <= text(in.ExclusiveStartKey[s.table.Key]) {
			continue
		}
		if read++; strings.HasPrefix(key, text(in.ExpressionAttributeValues[":prefix"])) {
			found = append(found, s.items[key])
		}
		if read == in.Limit {
			out["LastEvaluatedKey"] = map[string]any{s.table.Key: map[string]any{"S": key}}
			break
		}
	}
	out["Items"] = found
	return out
}

func (s *Server) describe(request, Fault) any {
	schema := []map[string]string{{"AttributeName": s.table.Key, "KeyType": "HASH"}}
	types := []map[string]string{{"AttributeName": s.table.Key, "AttributeType": "S"}}
	if s.table.Range != "" {
		schema = append(schema, map[string]string{"AttributeName": s.table.Range, "KeyType": "RANGE"})
		types = append(types, map[string]string{"AttributeName": s.table.Range, "AttributeType": "S"})
	}
	var replicas []map[string]string
	for _, region := range s.table.Replicas {
		replicas = append(replicas, map[string]string{"RegionName": region})
	}
	table := map[string]any{"TableName": s.name, "TableStatus": "ACTIVE", "KeySchema": schema, "AttributeDefinitions": types, "Replicas": replicas}
	if s.table.Strong {
		table["MultiRegionConsistency"] = "STRONG"
	}
	return map[string]any{"Table": table}
}

func (s *Server) describeTTL(request, Fault) any {
	if s.table.TTL == "" {
		return map[string]any{"TimeToLiveDescription": map[string]string{"TimeToLiveStatus": "DISABLED"}}
	}
	return map[string]any{"TimeToLiveDescription": map[string]string{"TimeToLiveStatus": "ENABLED", "AttributeName": s.table.TTL}}
}
