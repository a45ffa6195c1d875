package identity

import (
	"crypto/rand"
	"encoding/binary"
	"strconv"
)

// Attempt names a request of this process: by a number, which grows, and by random bits, which are drawn when the request
// begins. A copy of the process, as one that is restored from a snapshot, has the same letters and counts on from the same
// number. But what it asks for is no repeat.
//
// On the wire both are one number: the digits of Number, and randomDigits of Random. A script may compare two as Lua numbers,
// which keep the first 16 digits or so. That rounds by less than half of what two Numbers are apart, while these are below
// 3.6e15, as microseconds are until 2086. Random is less than a fifth of that. So a later attempt is the larger one there, too.
// Whether two are the same, texts tell.
type Attempt struct{ Number, Random uint64 }

// randomDigits is how many a uint64 has at most.
const randomDigits = 20

// NewAttempt draws the random bits.
func NewAttempt(number uint64) Attempt {
	var bits [8]byte
	_, _ = rand.Read(bits[:]) // it never fails
	return Attempt{number, binary.NativeEndian.Uint64(bits[:])}
}

// Append appends the digits.
func (a Attempt) Append(b []byte) []byte {
	b = strconv.AppendUint(b, a.Number, 10)
	for least := uint64(1e19); a.Random < least && least > 1; least /= 10 {
		b = append(b, '0')
	}
	return strconv.AppendUint(b, a.Random, 10)
}

// String returns the digits.
func (a Attempt) String() string {
	var digits [2 * randomDigits]byte
	return string(a.Append(digits[:0]))
}

// ReadAttempt reads them. One of an older version is a Number alone.
func ReadAttempt(digits string) (a Attempt, ok bool) {
	var err error
	if at := len(digits) - randomDigits; at > 0 {
		a.Random, err = strconv.ParseUint(digits[at:], 10, 64)
		digits = digits[:at]
	}
	if err == nil {
		a.Number, err = strconv.ParseUint(digits, 10, 64)
	}
	if err != nil {
		return Attempt{}, false
	}
	return a, true
}
