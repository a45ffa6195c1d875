package redislock

import (
	"strconv"
	"strings"
	"sync"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/keyless"
)

// prefix starts the name of every helper key and channel, and the value of every lock.
const prefix = conn.HelperPrefix

// Format is the version of keys, values and messages. A lock's value of a later version begins with "wllock3:", or its number, and is refused.
const Format = 2

// checkKey refuses a Redis key that is among the helper keys: its lock would be in the way of others. A client may have chosen it, where WithKey
// puts a client's text first (rule R19).
func checkKey(key string) error {
	if conn.IsHelper(key) {
		return keyless.Errorf("redislock: %w: the Redis key begins with %q, as the helper keys do", distributed.ErrInvalidKey, prefix)
	}
	return nil
}

// keyCount is how many keys a lock has; queueKey, readersKey and doneKey are places among them.
const keyCount, queueKey, readersKey, doneKey = 6, 2, 4, 5

// slots is the number of hash slots of a Redis cluster.
const slots = 16384

// keysOf returns the lock's key and its helper keys, in the order of common.lua; all live in one cluster slot.
// done is per instance, the others per lock.
func keysOf(key, instance string) [keyCount]string {
	var room [512]byte
	base := appendBase(room[:0], key)
	b, n := base, len(base)+1
	for i, helper := range []byte("sqwrd") {
		if i > 0 {
			b = append(b, base...)
		}
		b = append(b, helper)
	}
	all := string(append(append(b, ':'), instance...)) // one allocation for all
	return [keyCount]string{key, all[:n], all[n : 2*n], all[2*n : 3*n], all[3*n : 4*n], all[4*n:]}
}

// helperBase is what the helper keys of a lock start with: its system's space (rule R19), and a hash tag. Redis hashes what stands
// between the first brace and the next closing one, otherwise the whole key. A key without braces is its own hash tag; for one with braces a short tag
// of the same slot is looked up, because "{a}b}" would hash as "a" only.
func helperBase(key string) string { return string(appendBase(nil, key)) }

func appendBase(b []byte, key string) []byte {
	tag, own := key, ""
	if strings.ContainsAny(key, "{}") {
		tag, own = tags()[slotOf(key)], key+":"
	}
	for _, part := range [...]string{prefix, conn.SystemOf(key), ":{", tag, "}:", own} {
		b = append(b, part...)
	}
	return b
}

// slotOf returns the cluster slot of a key.
func slotOf(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1 : open+1+n]
		}
	}
	return int(crc16(key)) % slots
}

// tags returns a short text for every slot. It is built for the first key with braces, in about 10 ms.
var tags = sync.OnceValue(func() []string {
	table := make([]string, slots)
	for n, missing := 0, slots; missing > 0; n++ {
		tag := strconv.FormatInt(int64(n), 36)
		if slot := int(crc16(tag)) % slots; table[slot] == "" {
			table[slot] = tag
			missing--
		}
	}
	return table
})

// crc16 is CRC-16/XMODEM (polynomial 0x1021), which the cluster specification prescribes.
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()
