package report

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a backend says is redacted where it names the key, and cut where it names another, whose end nobody knows.
func TestRedactedTexts(t *testing.T) {
	r := newRedaction("shop", func(key string) string {
		return "#" + map[string]string{"47$11": "aa", "e \"x\"": "bb", "47": "cc"}[key]
	})
	for _, test := range []struct{ full, text, want string }{
		{"shop:n:47$11", "insert: duplicate 'shop:n:47$11' for key 2", "insert: duplicate 'shop:n:#aa' for key 2"},
		{"shop:n:47$11", "shop:n:47$11: away; 47$11 47$11, (47$11).", "shop:n:#aa: away; #aa #aa, (#aa)."},
		{"shop:n:47$11", "x47$11 47$11x 47$11:x", "x47$11 47$11x 47$11:x"},
		{"shop:n:e \"x\"", `is "shop:n:e \"x\"", no`, `is "shop:n:#bb", no`},
		{"shop:n:47", "dial 10.0.0.47:47 of 'shop:n:47'", "dial 10.0.0.47:47 of 'shop:n:#cc'"},
		{"shop:n:47", "'shop:n:47-12' is another", "'shop:n:#..."},
		{"shop:n:47$11", "shop:n:47$11 behind shop:m:e f is held", "shop:n:#aa behind shop:m:#..."},
		{"", "was 'shop:n:e f'", "was 'shop:n:#..."},
		{"", "myshop:n:e and shop:6379: refused by shop: x:y", "myshop:n:e and shop:6379: refused by shop: x:y"},
	} {
		require.Equal(t, test.want, r.Text(test.text, test.full))
	}
	plain := errors.New("nothing to hide")
	require.Same(t, plain, r.Error(plain, "shop:n:47"))
}
