package kubelock

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/keyless"
	"github.com/wllock/wllock/internal/kubetest"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

const (
	ttl = 2 * time.Second
	key = "shop:product:1"
)

// opened is a Backend on a server of its own.
func opened(t *testing.T) (*kubetest.Server, *Backend) {
	s := kubetest.Start(t)
	return s, open(t, s, s.Addr)
}

func request(instance string) distributed.Request {
	return distributed.Request{Key: key, Instance: instance, TTL: ttl, NoWait: true}
}

func leased(t *testing.T, b *Backend, instance string) distributed.Lease {
	t.Helper()
	l, _, err := b.Enter(t.Context(), request(instance))
	require.NoError(t, err)
	return l
}

// first has a fault happen to the first request of a verb, and counts those of the verb.
func first(s *kubetest.Server, verb string, f kubetest.Fault) (count *atomic.Int64) {
	count = new(atomic.Int64)
	s.Faults(func(v string) kubetest.Fault {
		if v != verb || count.Add(1) > 1 {
			return kubetest.Fault{}
		}
		return f
	})
	return count
}

// What was carried out and not answered is found: it has one effect.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	created := first(s, "create", kubetest.Fault{Lose: true})
	l := leased(t, b, "a")
	require.EqualValues(t, 1, created.Load())
	require.Len(t, s.Leases(), 1)
	_, _, err := b.Enter(t.Context(), request("b"))
	require.ErrorIs(t, err, distributed.ErrHeld)
	first(s, "delete", kubetest.Fault{Lose: true})
	require.NoError(t, l.Release(t.Context()))
	require.Eventually(t, func() bool { return len(s.Leases()) == 0 }, ttl, time.Millisecond)
}

// The client sends nothing twice by itself: what the kit decides would be decided without it.
func TestNothingIsRepeated(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	v, err := b.store.Put(t.Context(), key, []byte("{}"), "", time.Hour)
	require.NoError(t, err)
	for verb, ask := range map[string]func() error{
		"get":    func() error { _, err := b.store.Get(t.Context(), key); return err },
		"create": func() error { _, err := b.store.Put(t.Context(), "k", []byte("{}"), "", time.Hour); return err },
		"update": func() error { _, err := b.store.Put(t.Context(), key, []byte("{}"), v, time.Hour); return err },
		"delete": func() error { return b.store.Delete(t.Context(), key, v) },
		"list":   func() error { _, _, err := b.store.List(t.Context(), "", "", 1); return err },
		"watch":  func() error { return b.store.Watch(t.Context(), key, func(register.Document) {}) },
	} {
		for status, refused := range map[int]bool{http.StatusTooManyRequests: true, http.StatusInternalServerError: false, http.StatusServiceUnavailable: false} {
			count := first(s, verb, kubetest.Fault{Status: status})
			err := ask()
			require.EqualValues(t, 1, count.Load(), verb)
			require.ErrorIs(t, err, distributed.ErrUnavailable, verb)
			require.Equal(t, refused, isRefused(err), "%s: %v", verb, err)
		}
	}
}

func isRefused(err error) bool {
	text, _ := keyless.Text(err)
	return strings.Contains(text, "refused") && strings.Contains(text, "answers 4")
}

// A server that takes no more for now is asked again.
func TestBusy(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	created := first(s, "create", kubetest.Fault{Status: http.StatusTooManyRequests})
	require.NoError(t, leased(t, b, "a").Release(t.Context()))
	require.EqualValues(t, 2, created.Load())
}

// Only what was read is changed. An update does not make a Lease again that was deleted, though one without a UID would.
func TestVersions(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	ctx, data := t.Context(), []byte("{}")
	v1, err := b.store.Put(ctx, key, data, "", time.Hour)
	require.NoError(t, err)
	_, err = b.store.Put(ctx, key, data, "", time.Hour)
	require.ErrorIs(t, err, register.ErrConflict)
	v2, err := b.store.Put(ctx, key, data, v1, time.Hour)
	require.NoError(t, err)
	_, err = b.store.Put(ctx, key, data, v1, time.Hour)
	require.ErrorIs(t, err, register.ErrConflict)
	require.ErrorIs(t, b.store.Delete(ctx, key, v1), register.ErrConflict)
	require.NoError(t, b.store.Delete(ctx, key, v2))
	require.ErrorIs(t, b.store.Delete(ctx, key, v2), register.ErrConflict)
	_, err = b.store.Put(ctx, key, data, v2, time.Hour)
	require.ErrorIs(t, err, register.ErrConflict)
	require.Empty(t, s.Leases())
	v3, err := b.store.Put(ctx, key, data, "", time.Hour)
	require.NoError(t, err)
	before, err := b.store.Number(v2)
	require.NoError(t, err)
	after, err := b.store.Number(v3)
	require.NoError(t, err)
	require.Greater(t, after, before)
}

// A watch tells of each change. It ends with an error when the server ends it, or has forgotten its version.
func TestWatch(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	told, ended := make(chan register.Document, 10), make(chan error, 1)
	begin := func() {
		go func() { ended <- b.store.Watch(t.Context(), key, func(d register.Document) { told <- d }) }()
	}
	begin()
	require.Empty(t, (<-told).Version)
	v1, err := b.store.Put(t.Context(), key, []byte(`{"a":1}`), "", time.Hour)
	require.NoError(t, err)
	require.Equal(t, register.Document{Data: []byte(`{"a":1}`), Version: v1}, <-told)
	_, err = b.store.Put(t.Context(), "another", []byte(`{"a":1}`), "", time.Hour)
	require.NoError(t, err)
	v2, err := b.store.Put(t.Context(), key, []byte(`{"a":2}`), v1, time.Hour)
	require.NoError(t, err)
	require.Equal(t, v2, (<-told).Version)
	s.EndWatches()
	require.ErrorContains(t, <-ended, "the watch has ended")
	begin()
	require.Equal(t, v2, (<-told).Version)
	require.NoError(t, b.store.Delete(t.Context(), key, v2))
	require.Empty(t, (<-told).Version)
	s.EndWatches()
	<-ended
	s.Faults(func(verb string) kubetest.Fault {
		if verb == "watch" {
			s.Compact()
		}
		return kubetest.Fault{}
	})
	begin()
	require.ErrorContains(t, <-ended, "too old resource version")
}

// Waiters get the lock though no watch lasts.
func TestWatchesThatEnd(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	other := open(t, s, s.Addr)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-time.After(10 * time.Millisecond):
				s.Compact()
				s.EndWatches()
			case <-stop:
				return
			}
		}
	}()
	l := leased(t, b, "a")
	_, place, err := other.Enter(t.Context(), distributed.Request{Key: key, Instance: "b", TTL: ttl})
	require.NoError(t, err)
	time.Sleep(ttl / 4)
	require.NoError(t, l.Release(t.Context()))
	got, ok := <-place.Granted()
	require.True(t, ok)
	require.NoError(t, got.Release(t.Context()))
	close(stop)
	<-stopped
}

// Each right that is missing is named by Ping, until all are there.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	for _, verb := range kubetest.Verbs {
		s.Allow(slices.DeleteFunc(slices.Clone(kubetest.Verbs), func(v string) bool { return v == verb })...)
		err := b.Ping(t.Context())
		require.ErrorIs(t, err, distributed.ErrRefused, verb)
		require.ErrorContains(t, err, "cannot "+verb+` resource "leases" in API group "coordination.k8s.io" in the namespace "locks"`)
		require.ErrorContains(t, err, "want a Role with the verbs create, get, list, watch, update, delete on leases of coordination.k8s.io, of which are missing: "+verb)
	}
	s.Allow()
	require.ErrorContains(t, b.Ping(t.Context()), "missing: create, get, list, watch, update, delete")
	s.Allow(kubetest.Verbs...)
	require.NoError(t, b.Ping(t.Context()))
	others := first(s, "update", kubetest.Fault{})
	require.NoError(t, b.Ping(t.Context()))
	require.Zero(t, others.Load(), "what is known to be allowed is not tried again")
}

// The Role of the documentation is enough, and no more.
func TestRole(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/backends.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```yaml\n(kind: Role\n.*?)```").FindSubmatch(page)
	require.NotNil(t, block)
	var role struct {
		Rules []struct{ APIGroups, Resources, Verbs []string }
	}
	require.NoError(t, yaml.UnmarshalStrict(block[1], &struct {
		APIVersion, Kind any
		Metadata         any
		Rules            any
	}{}))
	require.NoError(t, yaml.Unmarshal(block[1], &role))
	require.Len(t, role.Rules, 1)
	require.Equal(t, []string{coordinationv1.GroupName}, role.Rules[0].APIGroups)
	require.Equal(t, []string{resource}, role.Rules[0].Resources)
	require.ElementsMatch(t, kubetest.Verbs, role.Rules[0].Verbs)
}

// What cannot work is refused with what to do.
func TestPingRefuses(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	s.Faults(func(string) kubetest.Fault { return kubetest.Fault{Status: http.StatusNotFound} })
	err := b.Ping(t.Context())
	require.ErrorIs(t, err, distributed.ErrRefused)
	require.ErrorContains(t, err, "want a namespace that exists, and Kubernetes 1.14 or later")
	s.Faults(func(string) kubetest.Fault { return kubetest.Fault{} })
	file := s.Kubeconfig(t, s.Addr)
	for url, want := range map[string]string{
		"kubernetes://other?kubeconfig=" + file:                  `namespaces "other" not found`,
		"kubernetes://locks?context=stranger&kubeconfig=" + file: "Unauthorized",
	} {
		b, err := Open(url)
		require.NoError(t, err)
		err = b.Ping(t.Context())
		require.ErrorIs(t, err, distributed.ErrRefused)
		require.ErrorContains(t, err, want)
		require.NoError(t, b.Close())
	}
	nowhere := open(t, s, "127.0.0.1:1")
	require.ErrorIs(t, nowhere.Ping(t.Context()), distributed.ErrUnreached)
}

// A token that is renewed is read again within a minute, for which the server knows both, as those of service accounts.
func TestTokenRotates(t *testing.T) {
	testscope.Long(t, "a token is read each minute")
	t.Parallel()
	s, b := opened(t)
	l := leased(t, b, "a")
	for range 2 {
		require.NoError(t, s.Rotate())
		time.Sleep(time.Minute)
	}
	require.False(t, distributed.Over(time.Now(), l.Until()))
	require.NoError(t, l.Release(t.Context()))
}

// A server that is slow is waited for exchangeTime, and no longer.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	first(s, "get", kubetest.Fault{Delay: time.Minute})
	began := time.Now()
	_, err := b.store.Get(t.Context(), key)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, distributed.ErrUnavailable)
	require.NotErrorIs(t, err, distributed.ErrRefused)
	require.GreaterOrEqual(t, time.Since(began), exchangeTime)
}

// A connection that says nothing any more is given up after one exchange, though HTTP/2 would keep it for most of a minute.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	s := kubetest.Start(t)
	proxy := testproc.NewProxy(t, s.Addr)
	b := open(t, s, proxy.Addr)
	var dead atomic.Bool
	proxy.SetFilters(func(l *testproc.Link, _ []byte) bool {
		l.Marked = l.Marked || !dead.Load()
		return true
	}, func(l *testproc.Link, _ []byte) bool { return !dead.Load() || !l.Marked })
	_, err := b.store.Get(t.Context(), key)
	require.NoError(t, err)
	dead.Store(true)
	_, err = b.store.Get(t.Context(), key)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = b.store.Get(t.Context(), key)
	require.NoError(t, err)
}

// Whoever deletes all Leases removes all locks. Their holders find that out, and the fences of the next are above theirs.
func TestLeasesAreDeleted(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	l := leased(t, b, "a")
	before := testlocker.Fence(t, l)
	s.Remove()
	testlocker.Lost(t, l)
	next := leased(t, b, "b")
	require.Greater(t, testlocker.Fence(t, next), before)
	require.NoError(t, next.Release(t.Context()))
}

// Leases of processes that died are deleted when their time is over for a day, and no others.
func TestReap(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	for key, keep := range map[string]time.Duration{"short": time.Second, "long": time.Hour} {
		_, err := b.store.Put(t.Context(), key, []byte("{}"), "", keep)
		require.NoError(t, err)
	}
	long := int32(1)
	foreign := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &long, RenewTime: &metav1.MicroTime{}}}
	require.NoError(t, b.store.exchange(t.Context(), b.store.request(http.MethodPost).Body(&foreign), nil))
	names := func() (all []string) {
		for _, l := range s.Leases() {
			all = append(all, l.Metadata.Name)
		}
		return all
	}
	b.store.reapAll(time.Now().Add(reapLate - time.Minute))
	require.Equal(t, []string{"foreign", name("long"), name("short")}, names())
	b.store.reapAll(time.Now().Add(reapLate + time.Minute))
	require.Equal(t, []string{"foreign", name("long")}, names())
	for range 100 * reapShare { // one of them begins it
		b.store.reap()
	}
	b.store.reaping.Wait()
	require.NotZero(t, b.store.reaped.Load())
	require.Equal(t, []string{"foreign", name("long")}, names())
}

// Keys may have any characters. Each has a name of its own, which is valid, and can be listed page by page. Errors do not show them.
func TestKeys(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	keys := []string{"b:b:c", "b:b:C", "b:b:c.d", "b:b:*", "b:b: ", "b:b:%2E", "b:b:ü\x00", "b:b:-", "b:b:" + strings.Repeat("ü", 300), "b:b:" + strings.Repeat("İ", 60)}
	for _, key := range keys {
		require.Empty(t, validation.IsDNS1123Subdomain(name(key)), key)
	}
	testlocker.Keys(t, b, "b", keys...)
	var spec struct{ HolderIdentity string }
	require.NoError(t, json.Unmarshal(s.Leases()[0].Spec, &spec))
	require.Equal(t, "web-1", spec.HolderIdentity)
}

// An error names the Lease, whose name has a part of the key. What is logged with redaction has none.
func TestErrorsWithoutKeys(t *testing.T) {
	t.Parallel()
	s, b := opened(t)
	s.Allow()
	_, err := b.store.Get(t.Context(), "b:b:c")
	require.ErrorContains(t, err, name("b:b:c"))
	text, _ := keyless.Text(err)
	require.NotContains(t, text, "b-b-c")
	require.Contains(t, text, "the API server answers 403 Forbidden")
}

// Tenures serve many times as many callers of a hot key as a turn for each through the API server.
func TestHotKey(t *testing.T) {
	testscope.Long(t, "measures")
	s := kubetest.Start(t)
	testlocker.HotKey(t, func() distributed.Backend { return open(t, s, s.Addr) })
}
