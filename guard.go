package wllock

import "context"

// Func is a guarded function. Its context carries the lock (HeldFrom) and ends when the lock is lost.
type Func = func(ctx context.Context) error

// Do runs fn while it holds the lock system:name:key. It waits for the lock until ctx ends, or as long as the options say.
//
// The name is a kind of resource, such as "product", and the key says which one. Options, Stats and metrics are per name. Beyond 10,000 names,
// locks still work, but Stats and metrics count all further names together, as "(other)".
//
// On Redis the full name of the lock is a Redis key: keep nothing else there, such as a cache of the same product. See docs/redis.md.
//
// If the lock is not acquired, fn does not run, and the error, an *Error, says why. If the lock was held until fn returned, Do returns fn's
// error unchanged. If it was lost before, the error is ErrLeaseLost, in an *Error, joined with fn's error. Likewise, if fn returns its context's
// error, or the cause, after WithLockTimeMax, ErrLockTimeMax is joined with it. nil and other errors stay as they are. A panic or runtime.Goexit
// in fn releases the lock and continues.
//
// With a nil context, function or option, Do returns an error at once, before any queue. For the first two, no fallback runs.
//
// Locks are reentrant: a Do inside fn on the same Locker, name and key, with a context derived from fn's, runs at once. Goroutines started by fn
// are not excluded from each other.
func (l *Locker) Do(ctx context.Context, name, key string, fn Func, opts ...CallOption) error {
	if fn == nil {
		return l.mistake(errNilFunc, name, key)
	}
	e, err := l.enter(ctx, name, key, opts)
	if err != nil {
		if e.fallback != nil {
			return e.fallback(ctx, err)
		}
		return err
	}
	return e.run(fn)
}

// Guard returns fn guarded by the lock: each call of the returned function is a Do.
func (l *Locker) Guard(name, key string, fn Func, opts ...CallOption) Func {
	return func(ctx context.Context) error { return l.Do(ctx, name, key, fn, opts...) }
}

// Call is Do for a function with a result. If the lock is not acquired, the result is R's zero value.
func Call[R any](ctx context.Context, l *Locker, name, key string,
	fn func(context.Context) (R, error), opts ...CallOption) (R, error) {
	var r R
	if fn == nil {
		return r, l.mistake(errNilFunc, name, key)
	}
	err := l.Do(ctx, name, key, func(ctx context.Context) (err error) {
		r, err = fn(ctx)
		return err
	}, opts...)
	return r, err
}

// Wrap returns fn, a function of one argument, guarded by a lock whose key the function key makes of that argument. Each call of the returned
// function is a Call.
func Wrap[A, R any](l *Locker, name string, key func(A) string, fn func(context.Context, A) (R, error),
	opts ...CallOption) func(context.Context, A) (R, error) {
	return func(ctx context.Context, a A) (r R, err error) {
		if key == nil || fn == nil {
			return r, l.mistake(errNilFunc, name, "")
		}
		return Call(ctx, l, name, key(a), func(ctx context.Context) (R, error) { return fn(ctx, a) }, opts...)
	}
}

// WrapOr is Wrap, except that it calls the function otherwise if the lock is not acquired, with the caller's context and the reason. otherwise
// holds no lock. It replaces a WithFallback.
func WrapOr[A, R any](l *Locker, name string, key func(A) string, fn func(context.Context, A) (R, error),
	otherwise func(context.Context, A, error) (R, error), opts ...CallOption) func(context.Context, A) (R, error) {
	return func(ctx context.Context, a A) (r R, err error) {
		if key == nil || fn == nil || otherwise == nil {
			return r, l.mistake(errNilFunc, name, "")
		}
		fallback := WithFallback(func(ctx context.Context, reason error) (err error) {
			r, err = otherwise(ctx, a, reason)
			return err
		})
		err = l.Do(ctx, name, key(a), func(ctx context.Context) (err error) {
			r, err = fn(ctx, a)
			return err
		}, append(opts[:len(opts):len(opts)], fallback)...)
		return r, err
	}
}
