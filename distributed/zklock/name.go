package zklock

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Format is the version of the nodes: 1, which they do not name. A request of another version is refused.
const Format = 1

// The names of nodes that are not locks begin with a percent sign and a letter that no escape has.
const (
	probeName = "%probe-" // of Ping
	ttlName   = "%ttl"    // of LongestTTL
)

// escape returns a key as the name of a node. It is the key itself as far as ZooKeeper takes its characters; all others,
// the slash and the percent sign are the %XX of their bytes, so that two keys never have one name. A server reads a name as
// UTF-16 and refuses surrogates, and with them all characters above U+FFFF.
func escape(key string) string {
	switch key { // the server's own words
	case ".", "..", "zookeeper":
		return fmt.Sprintf("%%%02X", key[0]) + key[1:]
	}
	if strings.IndexFunc(key, refused) < 0 {
		return key
	}
	var b strings.Builder
	for i, width := 0, 0; i < len(key); i += width {
		var r rune
		r, width = utf8.DecodeRuneInString(key[i:])
		if !refused(r) {
			b.WriteString(key[i : i+width])
			continue
		}
		for _, c := range []byte(key[i : i+width]) {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func refused(r rune) bool {
	return r == '/' || r == '%' || r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800
}

// Key returns the key of the lock whose node has this name, for people and programs that read the tree.
func Key(name string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b.WriteByte(name[i])
			continue
		}
		var c byte
		if i+2 >= len(name) {
			return "", fmt.Errorf("zklock: %q is not the name of a lock", name)
		}
		if _, err := fmt.Sscanf(name[i+1:i+3], "%02X", &c); err != nil {
			return "", fmt.Errorf("zklock: %q is not the name of a lock", name)
		}
		b.WriteByte(c)
		i += 2
	}
	return b.String(), nil
}
