package kubelock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
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

// Ping implements distributed.Backend. Until that has succeeded once, it tries each right that locks need, on a Lease of its own, and names all
// that are missing.
func (b *Backend) Ping(ctx context.Context) error {
	s, key := b.store, rand.Text()
	if err := b.Backend.Ping(ctx); s.allowed.Load() || err != nil && !errors.Is(err, distributed.ErrRefused) {
		return err
	}
	v := register.Version("1/none")
	created, err := s.Put(ctx, key, []byte("{}"), "", time.Second)
	refused := []error{err}
	if err == nil {
		v = created
	}
	for _, try := range []func() error{
		func() error { _, err := s.Get(ctx, key); return err },
		func() error { _, _, err := s.List(ctx, key, "", 1); return err },
		func() error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if err := s.Watch(ctx, key, func(register.Document) { cancel() }); ctx.Err() == nil {
				return err
			}
			return nil
		},
		func() error {
			changed, err := s.Put(ctx, key, []byte("{}"), v, time.Second)
			if err == nil {
				v = changed
			}
			return err
		},
		func() error { return s.Delete(ctx, key, v) },
	} {
		switch err := try(); {
		case errors.Is(err, distributed.ErrRefused):
			refused = append(refused, err)
		case err != nil && !errors.Is(err, register.ErrConflict): // nothing is changed if it could not be created
			return err
		}
	}
	err = errors.Join(refused...)
	if s.allowed.Store(err == nil); err != nil {
		return distributed.Unavailable("", err)
	}
	return nil
}

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
	heard     atomic.Int64         // when the latest exchange began that was answered, in Unix time in nanoseconds
	allowed   atomic.Bool          // Ping has found all rights

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	reaping sync.WaitGroup
	reaped  atomic.Int64 // when reap began last, in Unix time in nanoseconds
}

var (
	_ register.Numberer = (*store)(nil)
	_ register.Watcher  = (*store)(nil)
	_ register.Lister   = (*store)(nil)
)

const (
	resource = "leases"
	// exchangeTime bounds an exchange with a server that is silent.
	exchangeTime = 2 * time.Second
	// watchTime bounds a watch, so that one whose connection is dead ends.
	watchTime = 5 * time.Minute

	// owner is the label of all Leases here, and the manager of their fields.
	ownerLabel, owner = "app.kubernetes.io/managed-by", "wllock"
	keyAnnotation     = "wllock.github.io/key"
	dataAnnotation    = "wllock.github.io/document"
)

// exchange carries out a request once: of two tries the answer would not tell which was carried out. into: nil, or for what is answered.
func (s *store) exchange(ctx context.Context, r *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
	defer cancel()
	sent := time.Now()
	result := r.MaxRetries(0).Timeout(exchangeTime).Do(ctx)
	err := result.Error()
	if err == nil && into != nil {
		err = result.Into(into)
	}
	switch status := apierrors.APIStatus(nil); {
	case err == nil, errors.As(err, &status):
		s.heard.Store(sent.UnixNano())
	case errors.Is(err, context.DeadlineExceeded) && s.heard.Load() < sent.UnixNano(): // HTTP/2 would go on with a connection that is dead
		s.conns.CloseAll()
	}
	return err
}

func (s *store) request(verb string) *rest.Request {
	return s.client.Verb(verb).Namespace(s.namespace).Resource(resource)
}

// name is that of the Lease of a key: what is not allowed in one is left out, and a hash tells keys apart.
func name(key string) string {
	const most = 100
	sum := sha256.Sum256([]byte(key))
	readable := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, key[:min(len(key), most)])
	return strings.TrimLeft(readable+"-", "-") + hex.EncodeToString(sum[:16])
}

// document is what a Lease says, which is absent if it has no version.
func document(l *coordinationv1.Lease) (d register.Document) {
	if l.ResourceVersion != "" {
		d = register.Document{Data: []byte(l.Annotations[dataAnnotation]), Version: register.Version(l.ResourceVersion + "/" + string(l.UID))}
	}
	return d
}

// Get implements register.Store. Without a version of its own it is a consistent read.
func (s *store) Get(ctx context.Context, key string) (register.Document, error) {
	var l coordinationv1.Lease
	if err := s.exchange(ctx, s.request(http.MethodGet).Name(name(key)), &l); err != nil && !isAbsent(err) {
		return register.Document{}, failed(err)
	}
	return document(&l), nil
}

// Put implements register.Store.
func (s *store) Put(ctx context.Context, key string, data []byte, from register.Version, keep time.Duration) (register.Version, error) {
	var says struct { // for who lists Leases: a document of the kit's
		Owners []struct{ Instance string }
	}
	_ = json.Unmarshal(data, &says)
	seconds, now := max(int32(keep/time.Second), 1), metav1.NowMicro()
	l := coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: name(key), Labels: map[string]string{ownerLabel: owner},
			Annotations: map[string]string{keyAnnotation: key, dataAnnotation: string(data)},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: &now, LeaseDurationSeconds: &seconds},
	}
	if len(says.Owners) > 0 && says.Owners[0].Instance != "" {
		l.Spec.HolderIdentity = &says.Owners[0].Instance
	}
	r := s.request(http.MethodPost)
	if from != "" { // without its UID an update creates the Lease again that was deleted
		l.ResourceVersion, l.UID = split(from)
		r = s.request(http.MethodPut).Name(l.Name)
	} else {
		s.reap()
	}
	if err := s.exchange(ctx, r.Param("fieldManager", owner).Body(&l), &l); err != nil {
		return "", failed(err)
	}
	return document(&l).Version, nil
}

func split(v register.Version) (resourceVersion string, uid types.UID) {
	resourceVersion, id, _ := strings.Cut(string(v), "/")
	return resourceVersion, types.UID(id)
}

// Delete implements register.Deleter.
func (s *store) Delete(ctx context.Context, key string, from register.Version) error {
	version, uid := split(from)
	only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version, UID: &uid}}
	if err := s.exchange(ctx, s.request(http.MethodDelete).Name(name(key)).Body(&only), nil); isAbsent(err) {
		return register.ErrConflict
	} else if err != nil {
		return failed(err)
	}
	return nil
}

// Number implements register.Numberer: a resourceVersion is the revision of etcd, which grows with each write, also one that deletes.
func (s *store) Number(v register.Version) (int64, error) {
	version, _ := split(v)
	return strconv.ParseInt(version, 10, 64)
}

// Watch implements register.Watcher. Each begins with a list, and goes on from its version, so none begins too late.
func (s *store) Watch(ctx context.Context, key string, changed func(register.Document)) error {
	ctx, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	var found coordinationv1.LeaseList
	options := metav1.ListOptions{FieldSelector: metav1.ObjectNameField + "=" + name(key)}
	if err := s.exchange(ctx, s.request(http.MethodGet).VersionedParams(&options, parameters), &found); err != nil {
		return failed(err)
	}
	options.Watch, options.ResourceVersion = true, found.ResourceVersion
	events, err := s.request(http.MethodGet).VersionedParams(&options, parameters).MaxRetries(0).Watch(ctx)
	if err != nil {
		return failed(err)
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

// List implements register.Lister. The cursor is the server's.
func (s *store) List(ctx context.Context, prefix, cursor string, limit int) (page []register.Keyed, next string, err error) {
	found, err := s.page(ctx, cursor, limit)
	for i := range found.Items {
		if key := found.Items[i].Annotations[keyAnnotation]; strings.HasPrefix(key, prefix) {
			page = append(page, register.Keyed{Key: key, Document: document(&found.Items[i])})
		}
	}
	return page, found.Continue, err
}

func (s *store) page(ctx context.Context, cursor string, limit int) (found coordinationv1.LeaseList, err error) {
	options := metav1.ListOptions{LabelSelector: ownerLabel + "=" + owner, Limit: int64(limit), Continue: cursor}
	if err = s.exchange(ctx, s.request(http.MethodGet).VersionedParams(&options, parameters), &found); err != nil {
		err = failed(err)
	}
	return found, err
}

const (
	// reapEvery is how often a process reaps at most, and reapShare which share of the Leases that are made lets it: so processes that end soon do so, too.
	reapEvery, reapShare = time.Hour, 100
	// reapLate is for clocks that differ.
	reapLate = 24 * time.Hour
	reapPage = 500
)

// reap deletes Leases that processes have left which died, and that nobody asks for again, in the background.
func (s *store) reap() {
	before, now := s.reaped.Load(), time.Now()
	if now.Sub(time.Unix(0, before)) < reapEvery || mathrand.N(reapShare) != 0 || !s.reaped.CompareAndSwap(before, now.UnixNano()) {
		return
	}
	s.reaping.Go(func() {
		for cursor := ""; s.ctx.Err() == nil; {
			found, err := s.page(s.ctx, cursor, reapPage)
			for _, l := range found.Items {
				if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil || s.ctx.Err() != nil {
					continue
				}
				forgotten := l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second + reapLate)
				if time.Now().After(forgotten) {
					_ = s.Delete(s.ctx, l.Annotations[keyAnnotation], document(&l).Version)
				}
			}
			if cursor = found.Continue; err != nil || cursor == "" {
				return
			}
		}
	})
}

// isAbsent reports that the server knows Leases, and has none of this name.
func isAbsent(err error) bool {
	var s apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &s) && s.Status().Details != nil && s.Status().Details.Kind == resource && !apierrors.IsUnexpectedServerError(err)
}

// failed says what an error of the client's means to a caller. A status of 400 to 499 says that nothing was done.
func failed(err error) error {
	var network *net.OpError
	var s apierrors.APIStatus
	switch {
	case errors.As(err, &network) && network.Op == "dial":
		return distributed.Unavailable("kubelock", err, distributed.ErrUnreached)
	case !errors.As(err, &s):
		return distributed.Unavailable("kubelock", err)
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), isAbsent(err):
		return register.ErrConflict
	}
	code := int(s.Status().Code)
	err = keyless.Known(err, fmt.Sprintf("the API server answers %d %s", code, http.StatusText(code)))
	switch {
	case code == http.StatusTooManyRequests:
		return distributed.Unavailable("kubelock", err, distributed.ErrRefused, register.ErrBusy)
	case code == http.StatusForbidden:
		err = keyless.Errorf("%w: want a Role with the verbs create, get, update, delete, list and watch on leases of coordination.k8s.io", err)
	case code == http.StatusNotFound:
		err = keyless.Errorf("%w: want a namespace that is there, and Kubernetes 1.14 or later", err)
	case code < http.StatusBadRequest || code >= http.StatusInternalServerError:
		return distributed.Unavailable("kubelock", err)
	}
	return distributed.Unavailable("kubelock", err, distributed.ErrRefused)
}
