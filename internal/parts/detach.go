package parts

import (
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// CheckDetach returns an error for what cannot be detached, under this id and for so long.
func CheckDetach(backend string, shared bool, id string, lasts, longest time.Duration) error {
	switch {
	case shared:
		return keyless.Errorf("%s: detach: want an exclusive lease", backend)
	case lasts < distributed.MinTTL || longest > 0 && lasts > longest:
		return keyless.Errorf("%s: detach for %v: want at least %v", backend, lasts, distributed.MinTTL)
	}
	return checkID(backend, id)
}

// CheckAdopt returns an error for a request that adopts nothing.
func CheckAdopt(backend string, req *distributed.Request, id string, longest time.Duration) error {
	if req.Mode != distributed.Exclusive || req.Prev != nil {
		return keyless.Errorf("%s: adopt: want an exclusive request without Prev", backend)
	}
	if err := Check(backend, req, longest); err != nil {
		return err
	}
	return checkID(backend, id)
}

func checkID(backend, id string) error {
	if len(id) < 16 || len(id) > 64 || strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != "" {
		return keyless.Errorf("%s: the id of a detached lease: want 16 to 64 letters, digits, dashes and underscores", backend)
	}
	return nil
}
