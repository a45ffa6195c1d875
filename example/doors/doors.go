// Package doors makes other tools use wllock: goose, golang-migrate, certmagic, tusd and gocron. Copy the file of your tool, with this one.
//
// A waiter gets the lock soon after its release, in the order of arrival, where the tools' own locks are asked for again and again. What a
// dead process had is free after the lease TTL (T) at most. The default of 5 s suits all. Take 30 s if migrations load the database that the
// locks are in.
//
// No tool has a way to be told that its lock was lost. The comment on each type says what it does then, and how long to wait. Give them a
// Locker with FailClosed, the default: with LocalOnly each process would have the lock while the backend is away.
package doors

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wllock/wllock"
)

const (
	// hashed begins a key that is a hash.
	hashed = "sha256:"
	// longest is the longest key of wllock, in bytes.
	longest = 512
	// patience is how long a release waits for the backend.
	patience = 2 * time.Second
)

// keyOf makes a key of a name that a tool or its client made up. What is no valid key is hashed. So is a name that looks like a hash, and no
// two names meet in one key.
func keyOf(name string) string {
	valid := name != "" && len(name) <= longest && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
	if valid && !strings.HasPrefix(name, hashed) {
		return name
	}
	return fmt.Sprintf("%s%x", hashed, sha256.Sum256([]byte(name)))
}

// release releases a lock. The error says that it had been lost. A backend that does not answer is none: the release goes on in the
// background, and the lease expires.
func release(lock *wllock.Lock) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := lock.Release(ctx); errors.Is(err, wllock.ErrLeaseLost) {
		return err
	}
	return nil
}
