package awstest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Table is what DescribeTable answers of a table with a partition key of some name, and more fields.
func Table(key, more string) string {
	return fmt.Sprintf(`{"Table":{"KeySchema":[{"AttributeName":%q,"KeyType":"HASH"}],"AttributeDefinitions":[{"AttributeName":%[1]q,"AttributeType":"S"}]%s}}`, key, more)
}

// DynamoDB starts a service with one table, whose partition key is key.
func DynamoDB(t interface{ Cleanup(func()) }, table string) *Server {
	s := &Server{name: table}
	s.ask = s.dynamo
	start(t, s)
	s.Set("dynamodb:DescribeTable", Table("key", ""))
	s.Set("dynamodb:DescribeTimeToLive", `{"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLED","AttributeName":"expires"}}`)
	return s
}

// TableURL returns its URL at an address: the Server's, or that of a proxy before it.
func (s *Server) TableURL(addr string) string {
	return "dynamodb://" + s.name + "?endpoint=http://" + addr
}

// request is what locks ask of a table.
type request struct {
	TableName                             string
	ConsistentRead                        bool
	Key, Item, ExclusiveStartKey          map[string]any
	ConditionExpression, FilterExpression string
	ExpressionAttributeNames              map[string]string
	ExpressionAttributeValues             map[string]any
	Limit                                 int
	RequestItems                          map[string]request
	Keys                                  []map[string]any
}

// text returns the value of an attribute of type S.
func text(attribute any) string {
	a, _ := attribute.(map[string]any)
	value, _ := a["S"].(string)
	return value
}

func refusal(code, text string) answer { return answer{http.StatusBadRequest, code, text, ""} }

// dynamo returns what a request asks for.
func (s *Server) dynamo(r *http.Request) (action string, carryOut func(Fault) answer) {
	var in request
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	action = "dynamodb:" + operation
	return action, func(f Fault) answer {
		if _, is := in.RequestItems[s.name]; !is && in.TableName != s.name {
			return refusal("ResourceNotFoundException", "Requested resource not found")
		}
		switch operation {
		case "GetItem":
			return s.getItem(in)
		case "PutItem":
			return s.putItem(in)
		case "BatchGetItem":
			return s.batchGetItem(in.RequestItems[s.name], f)
		case "Scan":
			return s.scan(in)
		case "DescribeTable", "DescribeTimeToLive":
			return answer{text: s.set[action]}
		}
		panic("awstest: " + operation)
	}
}

func answered(out map[string]any) answer {
	body, _ := json.Marshal(out) // what was read as JSON
	return answer{text: string(body)}
}

// keyOf returns the value of the key. The caller holds mu, as of those below.
func (s *Server) keyOf(in map[string]any) string {
	key := text(in["key"])
	if key == "" || len(key) > 2048 {
		panic(fmt.Sprintf("awstest: the key %q", key))
	}
	return key
}

func consistent(in request) {
	if !in.ConsistentRead {
		panic("awstest: a read that is not consistent")
	}
}

func (s *Server) getItem(in request) answer {
	consistent(in)
	if item := s.items[s.keyOf(in.Key)]; item != nil {
		return answered(map[string]any{"Item": item})
	}
	return answered(map[string]any{})
}

func (s *Server) putItem(in request) answer {
	key := s.keyOf(in.Item)
	item, holds := s.items[key], false
	switch name, value, compares := strings.Cut(in.ConditionExpression, " = "); {
	case compares:
		holds = item != nil && text(item[in.ExpressionAttributeNames[name]]) == text(in.ExpressionAttributeValues[value])
	case in.ConditionExpression == "attribute_not_exists(#key)" && in.ExpressionAttributeNames["#key"] == "key":
		holds = item == nil
	default:
		panic("awstest: the condition " + in.ConditionExpression)
	}
	if !holds {
		return refusal("ConditionalCheckFailedException", "The conditional request failed")
	}
	s.items[key] = in.Item
	return answered(map[string]any{})
}

func (s *Server) batchGetItem(in request, fault Fault) answer {
	consistent(in)
	found, unread, seen := []any{}, map[string]any{}, map[string]bool{}
	for i, k := range in.Keys {
		key := s.keyOf(k)
		if seen[key] || i == 100 {
			return refusal("ValidationException", "Provided list of item keys contains duplicates, or more than 100")
		}
		seen[key] = true
		if i > 0 && fault.Rests {
			unread[s.name] = map[string]any{"ConsistentRead": true, "Keys": in.Keys[i:]}
			break
		}
		if item := s.items[key]; item != nil {
			found = append(found, item)
		}
	}
	return answered(map[string]any{"Responses": map[string]any{s.name: found}, "UnprocessedKeys": unread})
}

// scan reads Limit items, and then leaves out those that the filter is not of.
func (s *Server) scan(in request) answer {
	consistent(in)
	if in.FilterExpression != "begins_with(#key, :prefix)" || in.ExpressionAttributeNames["#key"] != "key" {
		panic("awstest: the filter " + in.FilterExpression)
	}
	found, out, read := []any{}, map[string]any{}, 0
	for _, key := range slices.Sorted(maps.Keys(s.items)) {
		if key <= text(in.ExclusiveStartKey["key"]) {
			continue
		}
		if read++; strings.HasPrefix(key, text(in.ExpressionAttributeValues[":prefix"])) {
			found = append(found, s.items[key])
		}
		if read == in.Limit {
			out["LastEvaluatedKey"] = map[string]any{"key": map[string]any{"S": key}}
			break
		}
	}
	out["Items"] = found
	return answered(out)
}
