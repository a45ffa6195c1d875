package httpguard_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/middleware/httpguard"
)

func TestKeys(t *testing.T) {
	request := func(target string, header ...string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, nil)
		for _, v := range header {
			r.Header.Add("Idempotency-Key", v)
		}
		return r
	}
	join := httpguard.Join(httpguard.Query("a"), httpguard.Query("b"))
	for name, test := range map[string]struct {
		key  httpguard.KeyFunc
		r    *http.Request
		want string // "": an error
	}{
		"header":              {httpguard.Header("Idempotency-Key"), request("/", "x"), "x"},
		"no header":           {httpguard.Header("Idempotency-Key"), request("/"), ""},
		"empty header":        {httpguard.Header("Idempotency-Key"), request("/", ""), ""},
		"two headers":         {httpguard.Header("Idempotency-Key"), request("/", "x", "y"), ""},
		"query":               {httpguard.Query("q"), request("/?q=x%20y"), "x y"},
		"no query":            {httpguard.Query("q"), request("/?p=x"), ""},
		"query twice":         {httpguard.Query("q"), request("/?q=x&q=y"), ""},
		"path outside a mux":  {httpguard.PathValue("id"), request("/orders/1"), ""},
		"join":                {join, request("/?a=1&b=2"), "1:2"},
		"join without a part": {join, request("/?a=1"), ""},
		"join, colon left":    {join, request("/?a=1%3A2&b=3"), "1%3A2:3"},
		"join, colon right":   {join, request("/?a=1&b=2%3A3"), "1:2%3A3"},
		"join, escaped":       {join, request("/?a=1%253A2&b=3"), "1%253A2:3"},
		"join, empty part":    {httpguard.Join(func(*http.Request) (string, error) { return "", nil }), request("/"), ""},
		"no body":             {httpguard.BodyJSON("id", 10), &http.Request{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.key(test.r)
			require.Equal(t, test.want, got)
			require.Equal(t, test.want == "", err != nil, "%v", err)
		})
	}
}

func TestBodyJSON(t *testing.T) {
	for body, want := range map[string]string{
		`{"id": "a b"}`:                        "a b",
		`{"id": "\u0061"}`:                     "a",
		`{"id": 1000}`:                         "1000",
		`{"id": -1}`:                           "-1",
		`{"id": 0}`:                            "0",
		`{"id": 9007199254740992}`:             "9007199254740992",
		`{"id": -9007199254740992}`:            "-9007199254740992",
		`{"id": "9007199254740993"}`:           "9007199254740993",
		`{"x": {"id": 1}, "y": [2], "id": 3} `: "3",

		// Another spelling would be another lock for the same product.
		`{"id": 1e3}`: "", `{"id": 1.0}`: "", `{"id": -0}`: "",
		// A handler that reads numbers as floats would take its neighbor.
		`{"id": 9007199254740993}`: "", `{"id": -9007199254740993}`: "", `{"id": 123456789012345678901234}`: "",
		// The handler may see the other one.
		`{"id": 1, "id": 2}`: "", `{"id": 1, "ID": 2}`: "", `{"ID": 2}`: "", `{"id": 1}{"id": 2}`: "",
		// Not what it should be.
		``: "", `{}`: "", `[]`: "", `"id"`: "", `{"id"`: "", `{"id": }`: "", `{"id": 1`: "", `{"id": 1]`: "", `{"id": 1} x`: "",
		`{"id": true}`: "", `{"id": null}`: "", `{"id": ["1"]}`: "", `{"id": {"a": 1}}`: "", `{"id": ""}`: "",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		got, _ := httpguard.BodyJSON("id", 100)(r)
		require.Equal(t, want, got, body)
	}
}

// Two numbers that have locks of their own are two for each handler, also for one that reads them without a type.
func TestNumbersOfDifferentKeysAreDifferentForHandlers(t *testing.T) {
	keyOf := map[any]string{}
	for _, number := range []string{"9007199254740990", "9007199254740991", "9007199254740992", "9007199254740993", "9007199254740994", "9223372036854775807"} {
		body := `{"id": ` + number + `}`
		key, err := httpguard.BodyJSON("id", 100)(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)))
		if err != nil {
			continue
		}
		var read map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &read))
		require.Empty(t, keyOf[read["id"]], "%s and %s", keyOf[read["id"]], key)
		keyOf[read["id"]] = key
	}
	require.Len(t, keyOf, 3)
}

// Something between two guards has read the first part of a body that is in memory: the handler will see the other one.
func TestBodyJSONOfWhatIsLeft(t *testing.T) {
	const first, other = `{"id": 1}`, `{"id": 2}`
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(first+other))
	key := httpguard.BodyJSON("id", 100)
	_, err := key(r)
	require.Error(t, err, "two objects")
	_, err = io.CopyN(io.Discard, r.Body, int64(len(first)))
	require.NoError(t, err)
	got, err := key(r)
	require.NoError(t, err)
	require.Equal(t, "2", got)
	left, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, other, string(left))
}

func FuzzBodyJSON(f *testing.F) {
	f.Add(`{"id": 1, "x": [{}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		_, _ = httpguard.BodyJSON("id", 1<<20)(r)
	})
}
