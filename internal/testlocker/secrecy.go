package testlocker

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/testproc"
)

// Secrecy makes calls of all kinds, by Lockers with redacted keys, for keys of many forms. They end in all ways that can be had of a
// service. No key may be in what is told of them: errors, log lines of the Locker and of the backend, Stats and Locks.
type Secrecy struct {
	System string
	TTL    time.Duration
	Open   func(t *testing.T, log *slog.Logger) distributed.Backend // as a process of its own has it, closed by the Locker
	// Hinders make the service fail, each in its own way, until undo is called.
	Hinders map[string]func(t *testing.T) (undo func())
}

// Cuts are Hinders of a service that is reached through a proxy to its address.
func Cuts(proxy *testproc.Proxy, addr string) map[string]func(*testing.T) func() {
	return map[string]func(*testing.T) func(){
		"a cut": func(*testing.T) func() {
			proxy.Redirect("127.0.0.1:1")
			proxy.Cut()
			return func() { proxy.Redirect(addr) }
		},
		"a stall": func(*testing.T) func() { proxy.Stall(true); return func() { proxy.Stall(false) } },
	}
}

// secrets are keys of many forms. No six characters in a row of one occur in what is told for another reason.
func secrets() []string {
	return []string{
		"aliqx@exzmple.org", "cuztomer/aliqx-4711", "DE89 3704 0044 0532 0130 00", "Żofiaż<3łódź", "o'briznqx", "jzqkwv", "aliqx%20smqth", "aliqx.zq.", "-aliqx-zq-",
		"aliqx:5zq:7", "{aliqxtag}zq", `"quotqxd zq"`, `back\slqsh\zq`, `{"keyqz":"valqx"}`, "../../etqx/pzsswd", "/aliqx/zq/", "//aliqx//zq", "aliqx?a=bzq&c=dqx", "aliqx#frqgmznt",
		"日本語のカギです", "👩‍👩‍👧kqzfamily", "aliqx\u00a0nbzsp", "49170123456789", "0b54e6f2-qx1c-4d7a-zq90-aliqx0000001", "$1 $2qxzq $$", "%s %d %q%!vqx", "aliqx'; DRZPQX TZBLE zq",
		"<b>aliqxzq</b>", "aliqx_%zq_like", "~aliqx*zq^|`", strings.Repeat("lqngkzy-", 60),
	}
}

// formsOf are the forms in which a service, or a library, may write a key.
func formsOf(key string) []string {
	quoted, ascii := strconv.Quote(key), strconv.QuoteToASCII(key)
	asJSON, _ := json.Marshal(key)
	forms := []string{
		key, quoted[1 : len(quoted)-1], ascii[1 : len(ascii)-1], string(asJSON[1 : len(asJSON)-1]), url.PathEscape(key), url.QueryEscape(key),
		strings.ReplaceAll(key, "'", "''"), strings.ReplaceAll(strings.ReplaceAll(key, "%", "%25"), "/", "%2F"),
	}
	for _, f := range forms[:8] {
		forms = append(forms, strings.ToLower(f), strings.ToUpper(f))
	}
	return append(forms, hex.EncodeToString([]byte(key)), base64.StdEncoding.EncodeToString([]byte(key)), base64.RawURLEncoding.EncodeToString([]byte(key)))
}

const (
	leastPart   = 6  // characters that tell of a key
	leastDigits = 11 // the same of digits alone, also hexadecimal ones, which times, fences and addresses have by chance
)

// beyondDigits reports a letter that is no hexadecimal digit.
func beyondDigits(r rune) bool { return unicode.IsLetter(r) && !unicode.Is(unicode.ASCII_Hex_Digit, r) }

// partsOf are the parts of keys that nothing may have, in all forms, with the key.
func partsOf(keys ...string) map[string]string {
	all := map[string]string{}
	for _, key := range keys {
		for _, form := range formsOf(key) {
			runes := []rune(form)
			for i := range runes {
				if i+leastPart <= len(runes) && strings.ContainsFunc(string(runes[i:i+leastPart]), beyondDigits) {
					all[string(runes[i:i+leastPart])] = key
				} else if i+leastDigits <= len(runes) {
					all[string(runes[i:i+leastDigits])] = key
				}
			}
		}
	}
	return all
}

// partIn returns a part of a key that a text has; "": it has none.
func partIn(text string, parts map[string]string) string {
	runes := []rune(text)
	for i := range runes {
		for _, length := range []int{leastPart, leastDigits} {
			if i+length > len(runes) {
				break
			}
			part := string(runes[i : i+length])
			if _, is := parts[part]; is {
				return part
			}
		}
	}
	return ""
}

// told is all that leaves a process. Loggers have goroutines of their own.
type told struct{ Log }

// error adds an error in the forms that programs print it in, and all that it wraps.
func (x *told) error(err error) {
	if err == nil {
		return
	}
	slog.New(slog.NewJSONHandler(x, nil)).Error("failed", "error", err)
	for all := []error{err}; len(all) > 0; all = all[1:] {
		asJSON, _ := json.Marshal(all[0])
		fmt.Fprintf(x, "%v\n%+v\n%#v\n%s\n", all[0], all[0], all[0], asJSON)
		switch e := all[0].(type) {
		case interface{ Unwrap() error }:
			if inner := e.Unwrap(); inner != nil {
				all = append(all, inner)
			}
		case interface{ Unwrap() []error }:
			all = append(all, e.Unwrap()...)
		}
	}
}

func (x *told) state(l *wllock.Locker) {
	stats := l.Stats()
	fmt.Fprintf(x, "%+v\n%+v\n%v\n", stats, l.Locks(99), l)
	x.error(l.Health().Err)
	if stats.LastLost != nil {
		x.error(stats.LastLost.Err)
	}
}

// Run runs the test.
func (s Secrecy) Run(t *testing.T) {
	x := new(told)
	log := slog.New(slog.NewTextHandler(x, &slog.HandlerOptions{Level: slog.LevelDebug}))
	open := func() (*wllock.Locker, distributed.Backend) {
		b := s.Open(t, log)
		l, err := wllock.New(s.System, b, wllock.WithLeaseTTL(s.TTL), wllock.WithLogger(log), wllock.WithOwnedBackend(),
			wllock.WithKeyRedaction(wllock.HashKeys([]byte("0123456789abcdef"))))
		if err != nil {
			t.Fatal(err)
		}
		return l, b
	}
	mine, backend := open()
	theirs, _ := open()
	each := func(f func(key string)) {
		var wg sync.WaitGroup
		for _, key := range secrets() {
			wg.Go(func() { f(key) })
		}
		wg.Wait()
		x.state(mine)
		x.state(theirs)
	}
	each(func(key string) { s.refused(t, x, mine, theirs, key) })
	each(func(key string) { s.lost(t, x, mine, backend, key) })
	for name, hinder := range s.Hinders {
		var mu sync.Mutex
		held := map[string]*wllock.Lock{}
		each(func(key string) {
			k, err := mine.Acquire(t.Context(), "n", key)
			if err != nil {
				t.Errorf("before %s: %v", name, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			held[key] = k
		})
		undo := hinder(t)
		var failed atomic.Int64
		each(func(key string) { s.hindered(t, x, mine, theirs, held[key], key, &failed) })
		undo()
		if failed.Load() == 0 {
			t.Errorf("%s has hindered nobody", name)
		}
		for _, l := range []*wllock.Locker{mine, theirs} {
			for l.Do(t.Context(), "n", "free again", Nothing) != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	each(func(key string) {
		_, err := mine.Acquire(t.Context(), "n", key, wllock.WithLockTimeMax(0))
		x.error(err)
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, l := range []*wllock.Locker{mine, theirs} {
		x.error(l.Close(ended))
		x.error(l.Close(t.Context()))
		x.error(l.Do(t.Context(), "n", secrets()[0], Nothing))
	}
	text := x.String()
	parts := partsOf(secrets()...)
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		if seen[line] {
			continue
		}
		seen[line] = true
		if part := partIn(line, parts); part != "" {
			t.Errorf("%q of the key %.40q is in %.600s", part, parts[part], line)
		}
	}
	for _, want := range []string{`acquire "` + s.System + ":n:#", `hold "` + s.System + ":n:#", "lock held for longer than its maximum", "still held"} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing told has %s", want)
		}
	}
}

// refused makes calls that are refused, with a lock that is held.
func (s Secrecy) refused(t *testing.T, x *told, mine, theirs *wllock.Locker, key string) {
	ctx, never := t.Context(), Never(t)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	want := func(err, is error) {
		t.Helper()
		if !errors.Is(err, is) {
			t.Errorf("%.40q: %v; want %v", key, err, is)
		}
		x.error(err)
	}
	k, err := mine.Acquire(ctx, "n", key, wllock.WithLockTimeMax(0))
	if err != nil {
		t.Errorf("%.40q: %v", key, err)
		return
	}
	fmt.Fprintf(x, "%v %+v %v\n%+v\n", k, k, k.Context(), mine.Locks(99))
	want(theirs.Do(ctx, "n", key, never, wllock.NoWait()), wllock.ErrHeld)
	want(theirs.Do(ctx, "n", key, never, wllock.WithWait(20*time.Millisecond)), wllock.ErrWaitTimeout)
	want(theirs.Do(short, "n", key, never), context.DeadlineExceeded)
	want(mine.Do(short, "n", key, never, wllock.WithCallThreshold(0)), wllock.ErrQueueFull)
	want(mine.Do(ctx, "n", "\x00"+key, never), wllock.ErrInvalidKey)
	want(mine.DoAll(k.Context(), []wllock.Resource{{Name: "a", Key: key}}, never), wllock.ErrLockOrder)
	want(theirs.Lead(short, "n", key, never), context.DeadlineExceeded)
	x.error(mine.Do(ctx, "n", key, nil))
	x.error(k.Release(ctx))
	want(mine.Do(ctx, "n", key, func(ctx context.Context) error {
		return mine.Do(ctx, "n", key, never)
	}, wllock.Shared()), wllock.ErrUpgrade)
	want(mine.Do(ctx, "n", key, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, wllock.WithLockTimeMax(10*time.Millisecond)),
		wllock.ErrLockTimeMax)
}

// lost has the lock broken, for a reason that names the key.
func (s Secrecy) lost(t *testing.T, x *told, l *wllock.Locker, b distributed.Backend, key string) {
	x.error(l.Do(t.Context(), "n", key, func(ctx context.Context) error {
		found, err := l.Inspect(ctx, "n", key)
		x.error(err)
		if i, able := distributed.InspectorOf(b); able && err == nil {
			_, err = i.Break(ctx, found, "ops", "hangs for "+key[:min(len(key), 90)])
			x.error(err)
			<-ctx.Done()
		}
		return nil
	}, wllock.WithLockTimeMax(2*s.TTL)))
}

// hindered makes calls while the service fails.
func (s Secrecy) hindered(t *testing.T, x *told, mine, theirs *wllock.Locker, k *wllock.Lock, key string, failed *atomic.Int64) {
	const patience = 400 * time.Millisecond
	noted := func(err error) {
		if errors.Is(err, wllock.ErrUnavailable) {
			failed.Add(1)
		}
		x.error(err)
	}
	if k != nil {
		short, end := context.WithTimeout(t.Context(), patience)
		noted(k.Release(short))
		end()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	calls := func(l *wllock.Locker) {
		short, end := context.WithTimeout(t.Context(), patience)
		defer end()
		noted(l.Do(short, "n", key, Nothing))
		noted(l.Do(short, "m", key, Nothing, wllock.NoWait(), wllock.SyncRelease()))
		noted(l.Do(short, "p", key, Nothing, wllock.Permits(2)))
		_, err := l.Inspect(short, "n", key)
		noted(err)
		noted(l.Ping(short))
		noted(l.Lead(short, "n", key, Nothing))
	}
	wg.Go(func() { calls(mine) })
	wg.Go(func() { calls(theirs) })
}
