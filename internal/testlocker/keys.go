package testlocker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/wllock/wllock/distributed"
)

// Keys locks keys of a system, until the test ends, and finds all of them, once each, in pages of three. Other systems have locks as well.
func Keys(t *testing.T, b interface {
	distributed.Backend
	distributed.Inspector
}, system string, keys ...string,
) {
	t.Helper()
	for _, key := range append([]string{"a:of:another", "z:of:another"}, keys...) {
		l, _, err := b.Enter(t.Context(), distributed.Request{Key: key, Instance: "web-1", TTL: time.Minute, NoWait: true})
		if err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		t.Cleanup(func() {
			if err := l.Release(context.Background()); err != nil {
				t.Errorf("%q: %v", key, err)
			}
		})
	}
	var listed []string
	for cursor, more := "", true; more; more = cursor != "" {
		page, next, err := b.List(t.Context(), system+":", cursor, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range page {
			listed = append(listed, one.Key)
		}
		cursor = next
	}
	if slices.Sort(listed); !slices.Equal(listed, slices.Sorted(slices.Values(keys))) {
		t.Errorf("listed %q, want %q", listed, keys)
	}
}
