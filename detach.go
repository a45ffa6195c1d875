package wllock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/hold"
	"github.com/wllock/wllock/internal/nametext"
	"github.com/wllock/wllock/internal/tenure"
	"github.com/wllock/wllock/local"
)

// Token stands for a detached lock: see Lock.Detach. It is one line of printable text, and a secret: only a process that has the token can adopt
// the lock or release it. The backend stores only a hash of the secret part.
type Token string

const (
	tokenVersion = "wllock1"
	tokenBytes   = 24 // of the secret: 192 bits
)

// newToken returns a token for the lock with this full name, and the id that the backend knows.
func newToken(full string) (t Token, id string) {
	var secret [tokenBytes]byte
	_, _ = rand.Read(secret[:]) // it never fails
	text := base64.RawURLEncoding
	return Token(tokenVersion + "." + text.EncodeToString([]byte(full)) + "." + text.EncodeToString(secret[:])), detachedID(secret[:])
}

// detachedID is the id of the detached lease whose token has this secret.
func detachedID(secret []byte) string {
	sum := sha256.Sum256(secret)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// read returns what the token says. Its errors do not show it.
func (t Token) read() (full, id string, err error) {
	parts := strings.Split(string(t), ".")
	if len(parts) != 3 || parts[0] != tokenVersion {
		return "", "", fmt.Errorf("wllock: token of %d bytes: want one of Lock.Detach, which begins with %q", len(t), tokenVersion+".")
	}
	name, err := base64.RawURLEncoding.DecodeString(parts[1])
	secret, wrong := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || wrong != nil || len(secret) != tokenBytes || strings.Count(string(name), ":") < 2 {
		return "", "", fmt.Errorf("wllock: token of %d bytes: it is damaged, or a part is missing", len(t))
	}
	return string(name), detachedID(secret), nil
}

// Key returns the full name of the lock, system:name:key. It returns an error if the token is damaged.
func (t Token) Key() (string, error) {
	full, _, err := t.read()
	return full, err
}

// String returns a placeholder, so that logs and errors do not show the token. string(t) is the whole token. Package fmt does not call String
// for an unexported field of a struct.
func (t Token) String() string { return tokenVersion + ".(secret)" }

// LogValue implements slog.LogValuer. It returns what String returns.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// GoString implements fmt.GoStringer. It returns what String returns.
func (t Token) GoString() string { return t.String() }

// Errors of Detach for a lock that cannot be detached. It stays held.
var (
	errDetachNested   = errors.New("wllock: Detach inside another guard of the same key, or with one inside: want a lock that is used nowhere else")
	errDetachShared   = errors.New("wllock: Detach of a shared lock or a permit: want an exclusive lock")
	errDetachStays    = errors.New("wllock: Detach with WithHoldAtLeast: want one or the other")
	errDetachReleased = errors.New("wllock: Detach of a Lock that was released or detached before")
	errDetachDegraded = fmt.Errorf("wllock: Detach: %w: the lock is held without a lease (LocalOnly)", ErrUnavailable)
)

// Detach gives up the lock without releasing it. The lock stays taken, for d at most, until a process that has the token uses it, once:
// Locker.Adopt takes the lock over in any process of the same system, and Locker.ReleaseToken releases it. So a request can lock what a job
// unlocks. Waiters keep their places. d is at least distributed.MinTTL and at most 366 days. When it has passed without an Adopt, the lock is
// free, as after a crash.
//
// The context of the lock ends with ErrDetached as its cause, and Release returns nil from then on. Detach needs an exclusive lock that has a
// lease at the backend, and that no nested guard shares. Otherwise it returns an error, and the lock stays held. That also happens if the
// backend cannot detach leases: then the error Is errors.ErrUnsupported.
//
// After an error that Is ErrLeaseLost or ErrUnavailable, or of ctx, the context of the lock ends with that error as its cause, and the lock is
// released. If the backend did not answer, it is released in the background, or at the latest after d.
//
// With LocalOnly, no process admits callers without a lease during an outage before d has passed, because the lock might be detached. That
// applies to all locks of the system, from a second after Detach until 2 d have passed, at least five minutes. So choose a short d where
// LocalOnly is used.
func (k *Lock) Detach(ctx context.Context, d time.Duration) (Token, error) {
	if ctx == nil {
		return "", errNilContext
	}
	if d < distributed.MinTTL || d > maxHoldAtLeast {
		return "", fmt.Errorf("wllock: Detach for %v: want %v to %v", d, distributed.MinTTL, maxHoldAtLeast)
	}
	t, err := k.locker.transferer()
	if err != nil {
		return "", err
	}
	if err := k.closeToDetach(); err != nil {
		return "", err
	}
	token, id := newToken(k.hold.Key())
	err = k.hold.GiveAway(func(l distributed.Lease) error {
		return k.locker.policy.Ask(ctx, func(ctx context.Context) error {
			if err := k.locker.policy.NoteTTL(ctx, d); err != nil {
				return err
			}
			return t.Detach(ctx, l, id, d)
		})
	})
	if err != nil {
		return "", &Error{Op: "detach", Key: k.hold.Shown(), Tier: TierDistributed, Ran: true, Err: k.locker.public(ctx, err)}
	}
	return token, nil
}

// closeToDetach closes the hold, if it can be detached.
func (k *Lock) closeToDetach() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.released:
		return errDetachReleased
	case k.hold.Mode() == distributed.Shared:
		return errDetachShared
	case k.hold.Least() > 0:
		return errDetachStays
	case !k.hold.Insist():
		return errDetachDegraded
	case !k.hold.CloseAlone():
		return errDetachNested
	}
	k.released = true
	return nil
}

func (l *Locker) transferer() (distributed.Transferer, error) {
	if t, ok := distributed.TransfererOf(l.backend); ok {
		return t, nil
	}
	return nil, fmt.Errorf("wllock: this backend cannot detach locks: %w", errors.ErrUnsupported)
}

// adopted makes the lock of a token one in the local queue that no other caller waits for: its turn is no one else's, though callers of the same
// lock wait for theirs.
const adopted = "\x00"

var adoptions atomic.Uint64

// lockOf is the full name of a lock in the local queue.
func lockOf(queued string) string {
	full, _, _ := strings.Cut(queued, adopted)
	return full
}

// Adopt takes over a detached lock, and renews its lease from then on. It does not queue, because the lock belongs to the owner of the token.
// The fence is above all earlier fences of the lock. The Lock must be released, or detached again. Adopt works once for a token. The error Is
// ErrLeaseLost if the token was used before, or its time has passed. After ErrUnavailable or ErrClosed, or when ctx ends, the token may have
// been used, and then the lock is released.
//
// Adopt waits for the backend's answer as long as ctx lasts. Of the options, WithLockTimeMax applies, as for Acquire. An option that requests
// any lock but an exclusive one is an error.
func (l *Locker) Adopt(ctx context.Context, token Token, opts ...CallOption) (*Lock, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	t, id, r, err := l.readToken(token, opts)
	if err != nil {
		return nil, err
	}
	h := new(own).hold()
	h.Init(l.holds, ctx, &r.name.Name, r.key, distributed.Exclusive)
	turn := local.Ask{Waiting: &r.name.Waiting}
	ask := tenure.Ask{TTL: l.settings.leaseTTL, Adopt: func(ctx context.Context) (distributed.Lease, error) {
		if err := l.policy.NoteTTL(ctx, l.settings.leaseTTL); err != nil {
			return nil, err
		}
		return t.Adopt(ctx, l.detachedRequest(r.key), id)
	}}
	traced := h.Trace(ctx)
	if err := h.Queue(traced, l.queue, r.key+adopted+strconv.FormatUint(adoptions.Add(1), 10), turn, time.Now()); err != nil {
		return nil, l.refused(traced, h, r.name, false, 0, err)
	}
	if atBackend, err := h.Begin(traced, turn, ask); err != nil {
		err = l.refused(traced, h, r.name, atBackend, 0, err)
		err.(*Error).Op, err.(*Error).RetryAfter = "adopt", 0
		return nil, err
	}
	if d := r.options.lockTimeMax; d > 0 {
		h.LimitBy(h.Began().Add(d))
	}
	return &Lock{Held: Held{h}, locker: l, ctx: h.Inside()}, nil
}

// ReleaseToken releases a detached lock. The error Is ErrLeaseLost if the token was used before, or its time has passed. It Is ErrUnavailable if
// the backend did not answer. Then the lock may be released already. If not, it is free when its time has passed.
func (l *Locker) ReleaseToken(ctx context.Context, token Token) error {
	if ctx == nil {
		return errNilContext
	}
	t, id, r, err := l.readToken(token, nil)
	if err != nil {
		return err
	}
	if err := t.Discard(ctx, l.detachedRequest(r.key), id); err != nil {
		return &Error{Op: "release", Key: l.observer.Redaction.Name(r.key), Tier: TierDistributed, Err: l.public(ctx, err)}
	}
	return nil
}

// detachedRequest asks for a detached lease. To the backend the Locker is another instance then, since it may be waiting for the lock at the
// same time (rule N5). It is another one each time: what is left of one request for a token must not end another. Numbers of permits do not begin
// with 0.
func (l *Locker) detachedRequest(key string) distributed.Request {
	return distributed.Request{Key: key, Instance: l.instance + "#0" + strconv.FormatUint(adoptions.Add(1), 10), TTL: l.settings.leaseTTL}
}

// readToken returns what a token stands for, and the request for its lock. What a name asks for by default does not change which lock that is.
func (l *Locker) readToken(token Token, opts []CallOption) (t distributed.Transferer, id string, r *request, err error) {
	if t, err = l.transferer(); err != nil {
		return nil, "", nil, err
	}
	full, id, err := token.read()
	if err != nil {
		return nil, "", nil, err
	}
	system, rest, _ := strings.Cut(full, ":")
	if system != l.names.system {
		return nil, "", nil, fmt.Errorf("wllock: token of the system %s: want one of %s", nametext.Quote(system), nametext.Quote(l.names.system))
	}
	name, key, _ := strings.Cut(rest, ":")
	r = new(request)
	if err := l.request(r, name, key, append([]CallOption{Exclusive(), WithHoldAtLeast(0)}, opts...)); err != nil {
		return nil, "", nil, err
	}
	if r.options.mode != distributed.Exclusive || r.options.least > 0 {
		return nil, "", nil, errors.New("wllock: Adopt with Shared, Permits or WithHoldAtLeast: a detached lock is exclusive, and is held until its release")
	}
	return t, id, r, nil
}

// ErrDetached is the cause with which the context of a detached lock ends.
var ErrDetached = hold.ErrDetached
