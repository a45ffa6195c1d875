package parts

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"

	"github.com/wllock/wllock/distributed"
)

// CheckPage returns an error for a page of List that is to have no keys.
func CheckPage(backend string, limit int) error {
	if limit <= 0 {
		return fmt.Errorf("%s: a page of %d keys: want 1 or more", backend, limit)
	}
	return nil
}

// CheckProbe returns an error for a Probe that no backend takes.
func CheckProbe(backend string, p distributed.Probe) error {
	if p.Key == "" || p.TTL < distributed.MinTTL {
		return fmt.Errorf("%s: a probe needs a key and a TTL of at least %v", backend, distributed.MinTTL)
	}
	return nil
}

// CheckBreak begins a Break by a service that numbers its changes: State is the number of the youngest holder that was found.
func CheckBreak(backend string, found distributed.Inspection, by, reason string) (record distributed.Breaking, youngest int64, err error) {
	if record, err = distributed.NewBreaking(found, by, reason); err != nil {
		return record, 0, err
	}
	if youngest, err = strconv.ParseInt(found.State, 10, 64); err != nil {
		return record, 0, fmt.Errorf("%s: %q is no state of a lock", backend, found.State)
	}
	return record, youngest, nil
}

// TagLength is the length of a Tag.
const TagLength = 8

// Tag shortens an instance's name to 40 bits. Two instances with one tag, which is unlikely, would not notice that the other waits, and
// nothing else.
func Tag(instance string) string {
	sum := sha256.Sum256([]byte(instance))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:TagLength*5/8]))
}
