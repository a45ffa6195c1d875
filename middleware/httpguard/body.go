package httpguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// BodyJSON takes the key from a top-level field of a JSON object in the body, a string or a whole number from -2^53 to 2^53. Send larger numbers
// as strings: programs that read numbers as floats, as Go does without a type, take them for their neighbors. A body longer than maxBytes is
// refused with 413. The body is read to its end and passed to the handler from memory. So BodyJSON is also a body buffer, with maxBytes as its
// limit: see WithBodyBuffer.
func BodyJSON(field string, maxBytes int64) KeyFunc {
	if maxBytes <= 0 {
		panic(fmt.Sprintf("httpguard: BodyJSON(%q, %d): want more than 0 bytes", field, maxBytes))
	}
	return func(r *http.Request) (string, error) {
		body, err := buffer(r, maxBytes)
		if err != nil {
			return "", err
		}
		return jsonField(body, field)
	}
}

// buffered is a body that has been read to its end.
type buffered struct {
	bytes.Reader
	body []byte
}

func newBuffered(body []byte) *buffered {
	b := &buffered{body: body}
	b.Reset(body)
	return b
}

// Close implements io.Closer. The server closes the original.
func (*buffered) Close() error { return nil }

// inMemory returns the body if it has been buffered, by a key function or an outer guard, and not been read since.
func inMemory(r *http.Request) (body []byte, ok bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, true
	}
	b, ok := r.Body.(*buffered)
	if !ok || b.Len() < len(b.body) {
		return nil, false
	}
	return b.body, true
}

// buffer reads the body to its end and replaces it with what was read.
func buffer(r *http.Request, limit int64) ([]byte, error) {
	body, read := inMemory(r)
	if r.ContentLength > limit || int64(len(body)) > limit { // rule M4, before the client is told to continue (Expect: 100-continue)
		return nil, &http.MaxBytesError{Limit: limit}
	}
	if read {
		return body, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, limit))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	r.Body = newBuffered(body)
	return body, nil
}

var errBody = errors.New("body cannot be read")

// jsonField returns one field of an object. The object is read by tokens and not into a map, because a handler may pick
// another of several fields with the same name, and encoding/json matches the names of struct fields regardless of case. A
// request with more than one candidate could hold the lock of one product and order another.
func jsonField(body []byte, field string) (key string, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", errShape
	}
	found := 0
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return "", errShape
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return "", errShape
		}
		if strings.EqualFold(name.(string), field) { // field names are always strings
			found++
		}
		if name == field {
			if key, err = jsonKey(value); err != nil {
				return "", fmt.Errorf("%s %w", field, err)
			}
		}
	}
	if _, err := d.Token(); err != nil {
		return "", errShape
	}
	if _, err := d.Token(); err != io.EOF {
		return "", errShape
	}
	if found > 1 {
		return "", fmt.Errorf("%s %w: %d times", field, errSeveral, found)
	}
	return key, nil
}

// whole matches numbers that have one spelling only: 1000 and 1e3 are the same product and must not be two locks.
var whole = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// maxWhole is up to where floats hold all whole numbers: a handler with map[string]any reads the next one as this one.
const maxWhole = 1 << 53

func jsonKey(value json.RawMessage) (string, error) {
	if value[0] != '"' {
		if !whole.Match(value) {
			return "", errKind
		}
		if n, err := strconv.ParseInt(string(value), 10, 64); err != nil || n < -maxWhole || n > maxWhole {
			return "", errLarge
		}
		return string(value), nil
	}
	var s string
	err := json.Unmarshal(value, &s)
	return s, err
}
