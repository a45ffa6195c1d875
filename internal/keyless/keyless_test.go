package keyless_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

const key = "alice@example.com/4711"

// What can hold no key stays: constants, numbers, addresses, codes. The rest is left out, in whatever form it names the key.
func TestTextHasOnlyWhatCanHoldNoKey(t *testing.T) {
	errLong := keyless.Errorf("the wait took %v", 5)
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6379}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for want, err := range map[string]error{
		"(redacted)":                                          errors.New("no row " + key),
		"context deadline exceeded":                           context.DeadlineExceeded,
		"context canceled (redacted)":                         fmt.Errorf("%s: %w", key, context.Canceled),
		"the wait took 5":                                     errLong,
		"the wait took 5: (redacted)":                         keyless.Errorf("%w: %w", errLong, errors.New(key)),
		"the wait took 5; EOF (redacted)":                     fmt.Errorf("%s: %w: %w", key, errLong, fmt.Errorf("%q: %w", key, errEOF)),
		"dial tcp 10.0.0.1:6379: connect: connection refused": refused,
		"permission denied (redacted)":                        &fs.PathError{Op: "open", Path: "/locks/" + key, Err: syscall.EACCES},
		"connection refused (redacted)":                       &net.OpError{Op: "dial", Err: fmt.Errorf("%s: %w", key, syscall.ECONNREFUSED)},
		"x509: certificate signed by unknown authority":       x509.UnknownAuthorityError{},
		"error 1062 (redacted)":                               keyless.Known(errors.New("Duplicate entry '"+key+"'"), "error 1062"),
		"a constant":                                          keyless.Known(errors.New("a constant"), "a constant"),
		"insert: unavailable: (redacted)":                     distributed.Unavailable("insert", errors.New(key+"\n"+key)),
		"insert: refused: the wait took 5":                    distributed.Unavailable("insert", errLong, distributed.ErrRefused),
		"lock is held by another":                             distributed.Held("web-1"),
		"the same text":                                       passed{keyless.Errorf("the same text"), key},
	} {
		text, safe := keyless.Text(err)
		require.Equal(t, want, text)
		shown := keyless.Of(err)
		require.Equal(t, want, shown.Error())
		require.ErrorIs(t, shown, err)
		if safe {
			require.Equal(t, err, shown)
		}
	}
}

var errEOF = keyless.Errorf("EOF")

// passed adds a field, and no words.
type passed struct {
	error
	Key string
}

func (p passed) Unwrap() error { return p.error }

// Who walks through what an error wraps finds what is safe, and nothing else. errors.Is finds all.
func TestRedactedErrorsWrapNoKey(t *testing.T) {
	secret := errors.New(key)
	err := distributed.Unavailable("insert", fmt.Errorf("%w: %w", secret, distributed.Held("web-1")), distributed.ErrRefused)
	shown := keyless.Of(passed{err, key})
	for _, is := range []error{secret, distributed.ErrUnavailable, distributed.ErrRefused, distributed.ErrHeld} {
		require.ErrorIs(t, shown, is)
	}
	held, ok := errors.AsType[*distributed.HeldError](shown)
	require.True(t, ok)
	require.Equal(t, "web-1", held.Holder)
	_, ok = errors.AsType[passed](shown)
	require.False(t, ok)
	var walk func(error)
	walk = func(err error) {
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), "alice")
		for _, inner := range errors.Join(err).(interface{ Unwrap() []error }).Unwrap() {
			if several, is := inner.(interface{ Unwrap() []error }); is {
				for _, one := range several.Unwrap() {
					walk(one)
				}
			}
		}
	}
	walk(shown)
}

// No form of a key comes through, for none is looked for.
func FuzzNoKeyComesThrough(f *testing.F) {
	for _, k := range []string{key, "DE89 3704 0044", "o'brien", `"quoted" \ back`, "Zo\u00eb <3", "{tag}", "100%41", strings.Repeat("long-", 100)} {
		f.Add(k)
	}
	f.Fuzz(func(t *testing.T, k string) {
		asJSON, _ := json.Marshal(k)
		for _, said := range []string{k, strconv.Quote(k), strconv.QuoteToASCII(k), string(asJSON), url.PathEscape(k), url.QueryEscape(k), "/locks/" + k + "/1", "lock_" + k, k + ":queue",
			strings.ToUpper(k), fmt.Sprintf("%x", k), k[:len(k)/2]} {
			for _, err := range []error{
				errors.New(said), fmt.Errorf("%s: %w", said, context.Canceled), &fs.PathError{Op: said, Path: said, Err: errors.New(said)},
				&net.OpError{Op: "read", Err: errors.New(said)}, errors.Join(errors.New(said), context.Canceled),
			} {
				text := keyless.Of(distributed.Unavailable("insert", err)).Error()
				require.Contains(t, []string{"insert: unavailable: (redacted)", "insert: unavailable: context canceled (redacted)"}, text)
			}
		}
	})
}
