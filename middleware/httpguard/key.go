package httpguard

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/wllock/wllock"
)

// KeyFunc makes the key of a lock from a request. If it returns an error or an empty key, the request is refused with 400. It runs before the
// queue. If it reads the body, it must replace it.
type KeyFunc = func(r *http.Request) (string, error)

// KeysFunc makes the locks of a request for NewAll. If it returns an error, an empty key, no key, or more than 64 different ones, the request is
// refused with 400. It runs before the queue. If it reads the body, it must replace it.
type KeysFunc = func(r *http.Request) ([]wllock.Resource, error)

// PathValue returns a KeyFunc that takes the key from the path, by the name of a wildcard in the pattern of an http.ServeMux. The value exists
// only inside the mux: wrap the registered handler, not the mux.
func PathValue(name string) KeyFunc {
	return func(r *http.Request) (string, error) { return single(name, []string{r.PathValue(name)}) }
}

// Header returns a KeyFunc that takes the key from a header field, which must occur exactly once.
func Header(name string) KeyFunc {
	return func(r *http.Request) (string, error) { return single(name, r.Header.Values(name)) }
}

// Query returns a KeyFunc that takes the key from a parameter of the URL's query, which must occur exactly once.
func Query(name string) KeyFunc {
	return func(r *http.Request) (string, error) { return single(name, r.URL.Query()[name]) }
}

// single refuses a missing value, and several: the lock might be for one and the work on another.
func single(name string, values []string) (string, error) {
	switch {
	case len(values) == 0 || values[0] == "":
		return "", fmt.Errorf("%s %w", name, errMissing)
	case len(values) > 1:
		return "", fmt.Errorf("%s %w: %d times", name, errSeveral, len(values))
	}
	return values[0], nil
}

// Why there is no key: each has its own answer.
var (
	errMissing = errors.New("is missing")
	errSeveral = errors.New("occurs more than once")
	errShape   = errors.New("body is not one JSON object")
	errKind    = errors.New("is neither a string nor a whole number")
	errLarge   = errors.New("is a number beyond 2^53: want a string")
)

// Join joins several keys with colons. Colons inside a part are escaped (%3A, and % itself as %25), so that different
// parts never make the same key.
func Join(keys ...KeyFunc) KeyFunc {
	for _, key := range keys {
		if key == nil {
			panic("httpguard: Join: a key function is nil")
		}
	}
	return func(r *http.Request) (string, error) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			part, err := key(r)
			if err != nil {
				return "", err
			}
			if part == "" {
				return "", fmt.Errorf("a part %w", errMissing)
			}
			parts[i] = escape.Replace(part)
		}
		return strings.Join(parts, ":"), nil
	}
}

var escape = strings.NewReplacer("%", "%25", ":", "%3A")
