package recipes

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/wllock/wllock"
)

// Exports are exports of accounts, of which one at a time is queued or runs for an account. A request
// begins it, and a job in another process ends it.
type Exports struct {
	Locker *wllock.Locker
	Queue  func(ctx context.Context, account string, token wllock.Token) error
	Export func(ctx context.Context, account string) error // may be repeated
}

// ServeHTTP answers 202, or 409 while an export of the account is queued or runs.
func (e *Exports) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch err := e.begin(r.Context(), r.PathValue("account")); {
	case err == nil:
		w.WriteHeader(http.StatusAccepted)
	case errors.Is(err, wllock.ErrHeld):
		http.Error(w, "an export of this account is under way", http.StatusConflict)
	default:
		slog.ErrorContext(r.Context(), "export not queued", "error", err)
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	}
}

func (e *Exports) begin(ctx context.Context, account string) error {
	lock, err := e.Locker.Acquire(ctx, "export", account, wllock.NoWait())
	if err != nil {
		return err
	}
	// It does nothing once the lock is detached.
	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }()
	const queued = time.Hour // as long as a job lies in the queue at most
	token, err := lock.Detach(ctx, queued)
	if err != nil {
		return err
	}
	if err := e.Queue(ctx, account, token); err != nil {
		return errors.Join(err, e.Locker.ReleaseToken(context.WithoutCancel(ctx), token))
	}
	return nil
}

// Run is the job. A queue may deliver it again after a crash: then the token was used, and the job waits
// for the lock as others do.
func (e *Exports) Run(ctx context.Context, account string, token wllock.Token) error {
	lock, err := e.Locker.Adopt(ctx, token)
	if errors.Is(err, wllock.ErrLeaseLost) {
		lock, err = e.Locker.Acquire(ctx, "export", account)
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }()
	return e.Export(lock.Context(), account)
}
