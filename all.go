package wllock

import (
	"context"
	"fmt"
	"slices"

	"github.com/wllock/wllock/distributed"
)

// Resource is a lock that DoAll acquires: system:Name:Key.
type Resource struct {
	Name, Key string
	Shared    bool // a read lock, as with the option Shared
}

// maxKeys bounds what one call keeps from others: in the queue of each key, callers wait for the whole call.
const maxKeys = 64

// DoAll runs fn while it holds the locks of all resources: 1 to 64 different keys, all or none. A key that is named more than once is acquired
// once: exclusively, unless all of its resources are shared.
//
// DoAll acquires the locks one after the other in the common order: that of their full names system:name:key, byte by byte. The order of
// resources does not matter. So calls of DoAll never wait for each other in a circle. Programs that nest several of these locks by other means
// have to keep that order themselves.
//
// Inside a hold of the same Locker, in a context derived from it, keys that are already held run at once, as with Do. Each of the others must
// come later in the common order than every key that the context holds. Otherwise DoAll returns ErrLockOrder at once, because it could wait
// forever. DoAll cannot see holds that ctx does not carry, or those of another Locker, even one with the same system and backend. A Do inside a
// hold of another key is not checked: for several keys, use DoAll.
//
// While a call waits for its later keys, it holds the earlier ones, and callers in their queues wait. So give a contended key a name that comes
// late in the common order: DoAll then holds it for no longer than fn takes.
//
// The call's options apply to every key, before those of the key's name. All waits count from the start of DoAll: WithWait covers all keys and
// both tiers. WithLockTimeMax counts from the moment when all keys are held. Shared makes all of them shared. The fallback is that of the key
// that was not acquired. With SyncRelease, a refused call also waits for the answers to the releases of the earlier keys, which may take one T
// beyond its wait.
//
// Error.Key is the key that was not acquired, or the first one that was lost. Error.Waited is for all keys and tries. The loss of any key ends
// fn's context. If a key is lost while DoAll waits for others, it releases them all and starts over within the same wait, up to 3 times. Then it
// returns ErrLeaseLost, with Ran false.
//
// A Resource has no limit: with Permits, even from WithName or WithDefaults, the call returns an error.
//
// In fn's context, HeldKey returns each lock with its own fence, and HeldFrom the last in the common order.
func (l *Locker) DoAll(ctx context.Context, resources []Resource, fn Func, opts ...CallOption) error {
	switch {
	case fn == nil:
		return l.mistakeAll(errNilFunc, resources)
	case ctx == nil:
		return l.mistakeAll(errNilContext, resources)
	}
	b := &bundle{locker: l}
	otherwise, err := b.ask(resources, opts)
	if err == nil {
		b, otherwise, err = b.enter(ctx)
	}
	switch {
	case err == nil:
		return b.run(fn)
	case otherwise != nil:
		return otherwise(ctx, err)
	}
	return err
}

// GuardAll returns fn guarded by the locks of all resources: each call of the returned function is a DoAll.
func (l *Locker) GuardAll(resources []Resource, fn Func, opts ...CallOption) Func {
	resources = slices.Clone(resources)
	return func(ctx context.Context) error { return l.DoAll(ctx, resources, fn, opts...) }
}

// ask notes the keys, in the common order. After an error it returns the fallback for that.
func (b *bundle) ask(resources []Resource, opts []CallOption) (fallback, error) {
	all := make([]request, 0, min(len(resources), maxKeys))
	for _, resource := range resources {
		var r request
		if err := b.locker.request(&r, resource.Name, resource.Key, opts); err != nil {
			return r.options.fallback, err
		}
		if r.options.permits > 0 {
			return r.options.fallback, errPermitAll // rule P5
		}
		if resource.Shared {
			r.options.mode = distributed.Shared
		}
		all = append(all, r)
	}
	b.keys = inOrder(all)
	for i := range b.keys {
		if r := &b.keys[i]; r.options.conflict() != nil { // of a Resource that is Shared
			return r.options.fallback, r.options.conflict()
		}
	}
	if n := len(b.keys); n == 0 || n > maxKeys {
		return b.locker.settings.defaults.with(opts).fallback,
			wrongCount(n)
	}
	return nil, nil
}

// mistakeAll is mistake for a DoAll.
func (l *Locker) mistakeAll(err error, resources []Resource) error {
	if len(resources) == 0 {
		return err
	}
	return l.mistake(err, resources[0].Name, resources[0].Key)
}

// wrongCount is the error of a DoAll of so many keys. It Is ErrInvalidKey, though none of them is.
type wrongCount int

func (n wrongCount) Error() string {
	return fmt.Sprintf("wllock: DoAll of %d different keys: want 1 to %d", int(n), maxKeys)
}

func (wrongCount) Is(target error) bool { return target == ErrInvalidKey }
