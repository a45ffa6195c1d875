package kubelock

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/driver/register"
	"github.com/wllock/wllock/internal/keyless"
)

// Backend is the distributed tier on Lease objects. It is safe for concurrent use. Make one per process, for all its Lockers.
type Backend struct {
	*register.Backend
	store *store
}

// Format is the version of the documents. A later version has its number in them, and is refused.
const Format = register.Format

// Ping implements distributed.Backend. Until it has succeeded once, it tries each right that locks need, and names all that are missing.
func (b *Backend) Ping(ctx context.Context) error {
	s, key, none := b.store, rand.Text(), register.Version("1/none")
	err := b.Backend.Ping(ctx)
	if s.allowed.Load() || err != nil && !errors.Is(err, distributed.ErrRefused) {
		return err
	}
	created, create := s.Put(ctx, key, nil, "", 0)
	_, get := s.Get(ctx, key)
	_, _, list := s.List(ctx, key, "", 1)
	watches, watch := s.begin(ctx, key, "")
	if watch == nil {
		watches.Stop()
	}
	updated, update := s.Put(ctx, key, nil, cmp.Or(created, none), 0)
	var missing []string
	for i, each := range []error{create, get, list, watch, update, s.Delete(ctx, key, cmp.Or(updated, created, none))} {
		if each != nil && !errors.Is(each, register.ErrConflict) { // else it is allowed, and the Lease is absent
			missing, err = append(missing, verbs[i]), cmp.Or(err, each)
		}
	}
	if s.allowed.Store(err == nil); apierrors.IsForbidden(err) {
		err = keyless.Errorf("%w; want a Role with the verbs %s on leases of coordination.k8s.io, of which are missing: %s", err,
			strings.Join(verbs, ", "), strings.Join(missing, ", "))
	}
	return err
}

// verbs are what Ping tries, in this order.
var verbs = []string{"create", "get", "list", "watch", "update", "delete"}

// Close implements distributed.Backend.
func (b *Backend) Close() error {
	err := b.Backend.Close()
	b.store.cancel()
	b.store.reaping.Wait()
	b.store.conns.CloseAll()
	return err
}

// store is the Leases of a namespace as a register.Store.
type store struct {
	namespace string
	client    rest.Interface
	conns     *connrotation.Dialer // has the connections of client
	heard     atomic.Int64         // when the latest answer came, in Unix time in nanoseconds
	allowed   atomic.Bool          // Ping has found all rights

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	reaping sync.WaitGroup
	reaped  atomic.Int64 // when reap began last, in Unix time in nanoseconds
}

var _, _, _ = register.Numberer(&store{}), register.Watcher(&store{}), register.Lister(&store{})

const (
	resource = "leases"
	// exchangeTime bounds an exchange with a server that is silent.
	exchangeTime = 2 * time.Second
	// watchTime bounds a watch, so that one whose connection is dead ends.
	watchTime = 5 * time.Minute

	// owner is in the label of all Leases here, and manages their fields.
	ownerLabel, owner             = "app.kubernetes.io/managed-by", "wllock"
	keyAnnotation, dataAnnotation = "wllock.github.io/key", "wllock.github.io/document"
)

func (s *store) request(verb string) *rest.Request {
	return s.client.Verb(verb).Namespace(s.namespace).Resource(resource).MaxRetries(0)
}

// exchange carries out a request once: of two tries the answer would not tell which was carried out. into is nil, or for the answer.
func (s *store) exchange(ctx context.Context, r *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
	defer cancel()
	sent := time.Now().UnixNano()
	result := r.Timeout(exchangeTime).Do(ctx)
	err := result.Error()
	if err == nil && into != nil {
		err = result.Into(into)
	}
	if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) {
		s.heard.Store(time.Now().UnixNano())
	} else if errors.Is(err, context.DeadlineExceeded) && s.heard.Load() < sent { // HTTP/2 would go on with a connection that is dead
		s.conns.CloseAll()
	}
	if err == nil {
		return nil
	}
	return failed(err)
}

// name is that of the Lease of a key. A hash tells apart keys that read alike.
func name(key string) string {
	readable := notInNames.ReplaceAllString(strings.ToLower(key[:min(len(key), 100)]), "-")
	sum := sha256.Sum256([]byte(key))
	return fmt.Sprintf("wllock-%s-%x", readable, sum[:16])
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// document is what a Lease says. One without a version is absent. With its UID an update does not make the Lease again that was deleted.
func document(l *coordinationv1.Lease) (d register.Document) {
	if l.ResourceVersion != "" {
		d = register.Document{Data: []byte(l.Annotations[dataAnnotation]), Version: register.Version(l.ResourceVersion + "/" + string(l.UID))}
	}
	return d
}

func split(v register.Version) (resourceVersion string, uid types.UID) {
	resourceVersion, id, _ := strings.Cut(string(v), "/")
	return resourceVersion, types.UID(id)
}

// Get implements register.Store. A read that names no version is consistent.
func (s *store) Get(ctx context.Context, key string) (register.Document, error) {
	var l coordinationv1.Lease
	err := s.exchange(ctx, s.request(http.MethodGet).Name(name(key)), &l)
	if errors.Is(err, register.ErrConflict) { // it is absent
		err = nil
	}
	return document(&l), err
}

// Put implements register.Store. The spec is for people, and for reap.
func (s *store) Put(ctx context.Context, key string, data []byte, from register.Version, keep time.Duration) (register.Version, error) {
	var lock struct{ Owners []struct{ Instance string } }
	_ = json.Unmarshal(data, &lock) // of a session it has none
	seconds, now := max(int32(keep/time.Second), 1), metav1.NowMicro()
	l := coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &now, LeaseDurationSeconds: &seconds}}
	l.Name, l.Labels = name(key), map[string]string{ownerLabel: owner}
	l.Annotations = map[string]string{keyAnnotation: key, dataAnnotation: string(data)}
	if len(lock.Owners) > 0 && lock.Owners[0].Instance != "" {
		l.Spec.HolderIdentity = &lock.Owners[0].Instance
	}
	r := s.request(http.MethodPost)
	if from == "" {
		s.reap()
	} else {
		l.ResourceVersion, l.UID = split(from)
		r = s.request(http.MethodPut).Name(l.Name)
	}
	var written coordinationv1.Lease
	err := s.exchange(ctx, r.Param("fieldManager", owner).Body(&l), &written)
	return document(&written).Version, err
}

// Delete implements register.Deleter.
func (s *store) Delete(ctx context.Context, key string, from register.Version) error {
	version, uid := split(from)
	only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version, UID: &uid}}
	return s.exchange(ctx, s.request(http.MethodDelete).Name(name(key)).Body(&only), nil)
}

// Number implements register.Numberer: a resourceVersion is the revision of etcd, which grows with each write, also with one that deletes.
func (s *store) Number(v register.Version) (int64, error) {
	version, _ := split(v)
	return strconv.ParseInt(version, 10, 64)
}

// Watch implements register.Watcher. Each watch goes on from a list of its own, so it never begins at a version that the server has forgotten.
func (s *store) Watch(ctx context.Context, key string, changed func(register.Document)) error {
	ctx, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	var found coordinationv1.LeaseList
	if err := s.exchange(ctx, s.of(key), &found); err != nil {
		return err
	}
	events, err := s.begin(ctx, key, found.ResourceVersion)
	if err != nil {
		return err
	}
	defer events.Stop()
	changed(document(&append(found.Items, coordinationv1.Lease{})[0]))
	for e := range events.ResultChan() {
		switch l, _ := e.Object.(*coordinationv1.Lease); {
		case e.Type == watch.Error:
			return failed(apierrors.FromObject(e.Object))
		case e.Type == watch.Deleted:
			changed(register.Document{})
		case l != nil:
			changed(document(l))
		}
	}
	return distributed.Unavailable("kubelock", keyless.Errorf("the watch has ended"))
}

// begin begins a watch of what comes after a version.
func (s *store) begin(ctx context.Context, key, after string) (watch.Interface, error) {
	events, err := s.of(key).Param("watch", "true").Param("resourceVersion", after).Watch(ctx)
	if err != nil {
		return nil, failed(err)
	}
	return events, nil
}

// of is a request for a list of one Lease.
func (s *store) of(key string) *rest.Request {
	return s.request(http.MethodGet).Param("fieldSelector", metav1.ObjectNameField+"="+name(key))
}

// List implements register.Lister. The cursor is the server's.
func (s *store) List(ctx context.Context, prefix, cursor string, limit int) (page []register.Keyed, next string, err error) {
	found, err := s.page(ctx, cursor, limit)
	for _, l := range found.Items {
		if key := l.Annotations[keyAnnotation]; strings.HasPrefix(key, prefix) {
			page = append(page, register.Keyed{Key: key, Document: document(&l)})
		}
	}
	return page, found.Continue, err
}

func (s *store) page(ctx context.Context, cursor string, limit int) (found coordinationv1.LeaseList, err error) {
	r := s.request(http.MethodGet).Param("labelSelector", ownerLabel+"="+owner).Param("limit", strconv.Itoa(limit)).Param("continue", cursor)
	err = s.exchange(ctx, r, &found)
	return found, err
}

const (
	// reapEvery is how often a process reaps at most. It does so as it makes one Lease of reapShare, so processes that end soon have their share.
	reapEvery, reapShare = time.Hour, 100
	// reapLate is for clocks that differ.
	reapLate = 24 * time.Hour
	reapPage = 500
)

// reap now and then deletes, in the background, what processes have left that died: nobody asks for it again.
func (s *store) reap() {
	before, now := s.reaped.Load(), time.Now()
	if now.Sub(time.Unix(0, before)) > reapEvery && mathrand.N(reapShare) == 0 && s.reaped.CompareAndSwap(before, now.UnixNano()) {
		s.reaping.Go(func() { s.reapAll(now) })
	}
}

func (s *store) reapAll(now time.Time) {
	for cursor, more := "", true; more; more = cursor != "" {
		found, _ := s.page(s.ctx, cursor, reapPage)
		for _, l := range found.Items {
			if s.ctx.Err() != nil {
				return
			}
			renewed, kept := l.Spec.RenewTime, l.Spec.LeaseDurationSeconds
			if renewed != nil && kept != nil && now.Sub(renewed.Time) > time.Duration(*kept)*time.Second+reapLate {
				_ = s.Delete(s.ctx, l.Annotations[keyAnnotation], document(&l).Version)
			}
		}
		cursor = found.Continue
	}
}

// failed says what an error of the client's means to a caller. With a status of 400 to 499 nothing was done.
func failed(err error) error {
	var network *net.OpError
	var answer apierrors.APIStatus
	switch {
	case errors.As(err, &network) && network.Op == "dial":
		return distributed.Unavailable("kubelock", err, distributed.ErrUnreached)
	case !errors.As(err, &answer):
		return distributed.Unavailable("kubelock", err)
	}
	code, details := int(answer.Status().Code), answer.Status().Details
	absent := code == http.StatusNotFound && details != nil && details.Kind == resource && !apierrors.IsUnexpectedServerError(err)
	if absent || code == http.StatusConflict {
		return register.ErrConflict
	}
	err = keyless.Known(err, fmt.Sprintf("the API server answers %d %s", code, http.StatusText(code)))
	switch {
	case code < http.StatusBadRequest || code >= http.StatusInternalServerError:
		return distributed.Unavailable("kubelock", err)
	case code == http.StatusTooManyRequests:
		return distributed.Unavailable("kubelock", err, distributed.ErrRefused, register.ErrBusy)
	case code == http.StatusNotFound:
		err = keyless.Errorf("%w: want a namespace that exists, and Kubernetes 1.14 or later", err)
	}
	return distributed.Unavailable("kubelock", err, distributed.ErrRefused)
}
