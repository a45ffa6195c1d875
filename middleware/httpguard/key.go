package httpguard

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// KeyFunc makes the key of a lock from a request. An error, or an empty key, refuses the request with 400. It runs before
// the queue, and may read the body if it puts another in its place.
type KeyFunc = func(r *http.Request) (string, error)

// PathValue takes the key from the path, by the name of a wildcard in the pattern of an http.ServeMux. It is there only
// inside of the mux: wrap the handler that is registered, not the mux.
func PathValue(name string) KeyFunc {
	return func(r *http.Request) (string, error) { return single(name, []string{r.PathValue(name)}) }
}

// Header takes the key from a header field, which may be there once.
func Header(name string) KeyFunc {
	return func(r *http.Request) (string, error) { return single(name, r.Header.Values(name)) }
}

// Query takes the key from a parameter of the URL's query, which may be there once.
func Query(name string) KeyFunc {
	return func(r *http.Request) (string, error) { return single(name, r.URL.Query()[name]) }
}

// single refuses what is missing, and what is there twice: the lock would be for one, the work perhaps on the other.
func single(name string, values []string) (string, error) {
	switch {
	case len(values) == 0 || values[0] == "":
		return "", fmt.Errorf("%s is missing", name)
	case len(values) > 1:
		return "", fmt.Errorf("%s is there %d times", name, len(values))
	}
	return values[0], nil
}

// Join makes one key of several, with colons between. Colons inside of a part are escaped (%3A, and % itself as %25), so
// that different parts never make the same key.
func Join(keys ...KeyFunc) KeyFunc {
	return func(r *http.Request) (string, error) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			part, err := key(r)
			if err != nil {
				return "", err
			}
			if part == "" {
				return "", errors.New("a part is empty")
			}
			parts[i] = escape.Replace(part)
		}
		return strings.Join(parts, ":"), nil
	}
}

var escape = strings.NewReplacer("%", "%25", ":", "%3A")
