package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/wllock/wllock"
)

// Mailer sends a mail to a customer at most once an hour, whichever process asks.
type Mailer struct {
	Locker *wllock.Locker
	Send   func(ctx context.Context, customer string) error // repeats by itself: nobody else does
}

// Remind sends the mail, or knows that another call has sent it, or is sending it.
func (m *Mailer) Remind(ctx context.Context, customer string) error {
	err := m.Locker.Do(ctx, "mail", customer, func(ctx context.Context) error {
		return m.Send(ctx, customer)
	}, wllock.NoWait(), wllock.WithHoldAtLeast(time.Hour))
	if errors.Is(err, wllock.ErrHeld) {
		return nil
	}
	return err
}
