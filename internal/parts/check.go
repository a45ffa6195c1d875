package parts

import (
	"fmt"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// Check returns an error for a request that no backend takes, or whose TTL is longer than the longest of this one. 0: any.
func Check(backend string, req *distributed.Request, longest time.Duration) error {
	if err := req.CheckLimit(); err != nil {
		return keyless.Errorf("%s: %w", backend, err)
	}
	if req.TTL >= distributed.MinTTL && (longest == 0 || req.TTL <= longest) && req.Instance != "" && req.Key != "" {
		return nil
	}
	ttl := fmt.Sprintf("of at least %v", distributed.MinTTL)
	if longest > 0 {
		ttl = fmt.Sprintf("from %v to %v", distributed.MinTTL, longest)
	}
	return keyless.Errorf("%s: a request needs a key, an instance and a TTL %s", backend, ttl)
}
