package etcdlock

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/parts"
)

// Format is the version of the keys: 1, which they do not name. A request of another version is refused.
const Format = 1

// The keys, below the prefix:
//
//	<key>/x/<instance>-<id>    a request for an exclusive lock; its value is the instance in full, and letters of its own
//	<key>/s/0/<instance>-<id>  a request for a shared one
//	<key>/xp/0<n>/<instance>-<id>  a request for one of n permits
//	<key>/x/Detached-<id>      the lease that is held was detached once: see rule E9
//	<key>/x<n>/...             one of a version that has format n: see Format
//	%guard/<session>           exists once a create of the session was given up: see session.guard
//	%write/<session>           written for its revision, by Refill and Ping
//	%ttl/<system>/<ns>         a lease TTL that is in use
//	%broken/<key>              the last lease of a lock that was ended by force
//
// The id is random, and used again: see names. The letters in the value are random, and drawn for each request. So a key is known again
// if the answer to its create was lost. One is not taken for ours that a copy of this process has created, which has the same names. In
// the key of a lock a slash and a percent sign are the %XX of their bytes: no two locks have a prefix in common, and none is like the
// other names.
const (
	guardName = "%guard/"
	writeName = "%write/"
	ttlName   = "%ttl/"
	// brokenName begins the records of what was ended by force.
	brokenName = "%broken/"

	idLength = 16 // of rand.Text: 80 bits
)

var escaper = strings.NewReplacer("%", "%25", "/", "%2F")

// Key returns the key of the lock to which a key in etcd belongs, for people and programs that read the database. prefix is that of the Backend.
func Key(prefix, name string) (string, error) {
	rest, below := strings.CutPrefix(name, prefix+"/")
	escaped, _, cut := strings.Cut(rest, "/")
	key := strings.NewReplacer("%25", "%", "%2F", "/").Replace(escaped)
	if !below || !cut || escaper.Replace(key) != escaped {
		return "", fmt.Errorf("etcdlock: %q is no request for a lock below %q", name, prefix)
	}
	return key, nil
}

// dirOf is the prefix of all requests for a lock.
func (b *Backend) dirOf(key string) string { return b.set.prefix + "/" + escaper.Replace(key) + "/" }

// letterOf begins the name of a request after the prefix of its lock. Those that a reader may have to wait for, writers and permits, have
// a prefix in common.
func letterOf(mode distributed.Mode, limit int) string {
	switch {
	case limit > 0:
		return permitLetter + "0" + strconv.Itoa(limit) + "/"
	case mode == distributed.Shared:
		return sharedLetter + "0/"
	}
	return "x/"
}

const (
	rivalLetter  = "x"
	permitLetter = "xp/"
	sharedLetter = "s/"
	// olderLetter is the first that is behind the last two in a version without detached leases, where we have a zero.
	olderLetter = "1"
	// movedTag is in place of a request's, of which none is in capitals.
	movedTag = "Detached"
)

// tagIn returns the tag in the name of a request; "": it is none.
func tagIn(name string) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	if len(name) != parts.TagLength+1+idLength || name[parts.TagLength] != '-' || name[:parts.TagLength] == movedTag {
		return ""
	}
	return name[:parts.TagLength]
}

// formatIn is the format in the name of a request of another version, behind the prefix of its lock: "x2/..."; 0: it is none. It begins like
// those that keep all others out, so that readers see it too.
func formatIn(name string) int {
	rest, is := strings.CutPrefix(name, rivalLetter)
	digits, _, cut := strings.Cut(rest, "/")
	n, err := strconv.Atoi(digits)
	if !is || !cut || err != nil {
		return 0
	}
	return n
}

// valueOf is the value of the key of a request.
func valueOf(instance string) string { return instance + " " + rand.Text()[:idLength] }

// movedMark is, in the value of a key, the first letter of a lease that was detached once: rand.Text has no such. The digits are of a version.
const (
	movedMark   = '1'
	movedDigits = 8
)

// movedValue puts the version that the key has from now on into the first of the letters.
func movedValue(value string, version int64) string {
	at := len(value) - idLength
	return fmt.Sprintf("%s%c%0*x%s", value[:at], movedMark, movedDigits, version, value[at+1+movedDigits:])
}

// besideOf is the key beside that of a lease that was detached once, which has this value.
func besideOf(dir, value string) string {
	return dir + letterOf(distributed.Exclusive, 0) + movedTag + "-" + value[len(value)-idLength:]
}

// exclusiveVersion is the version of a key with this value while its lease is exclusive. Downgrade writes the next one.
func exclusiveVersion(value []byte) int64 {
	at := len(value) - idLength
	if at < 0 || value[at] != movedMark {
		return 1
	}
	n, err := strconv.ParseInt(string(value[at+1:at+1+movedDigits]), 16, 64)
	if err != nil {
		return 1
	}
	return n
}

// instanceIn returns the instance of a value. Those of older versions are the instance alone.
func instanceIn(value []byte) string {
	if at := len(value) - idLength - 1; at > 0 && value[at] == ' ' {
		value = value[:at]
	}
	return string(value)
}

func sessionName(id int64) string { return strconv.FormatInt(id, 16) }
