package recipes

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/wllock/wllock"
)

// Partner calls an API that bears so many calls at a time, from all processes together.
type Partner struct {
	Locker *wllock.Locker
	Client *http.Client
	Limit  int // the same in all processes: what the partner allows
}

// Get makes one call, under a permit until the whole answer has been read.
func (p *Partner) Get(ctx context.Context, url string) ([]byte, error) {
	return wllock.Call(ctx, p.Locker, "partner", "acme", func(ctx context.Context) ([]byte, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return nil, err
		}
		response, err := p.Client.Do(request)
		if err != nil {
			return nil, err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the partner answered %s", response.Status)
		}
		return io.ReadAll(io.LimitReader(response.Body, maxBody))
	}, wllock.Permits(p.Limit), wllock.WithWait(5*time.Second))
}

// Renew changes the credentials while no call runs: without Permits, it waits for all permits, and later
// ones wait for it.
func (p *Partner) Renew(ctx context.Context, change func(ctx context.Context) error) error {
	return p.Locker.Do(ctx, "partner", "acme", change, wllock.WithWait(time.Minute))
}
