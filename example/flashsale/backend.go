package main

import (
	"fmt"
	"strings"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/distributed/memlock"
)

const (
	memoryURL       = "memory://"
	backendsAllowed = "memory:// (inside one process)"
)

func knownScheme(scheme string) bool { return scheme == "memory" }

// openBackend opens the lock service that url names.
func openBackend(url string) (distributed.Backend, error) {
	switch scheme, _, _ := strings.Cut(url, "://"); scheme {
	case "memory":
		return memlock.New(), nil
	default:
		return nil, fmt.Errorf("no lock service for %q; allowed is %s", scheme, backendsAllowed)
	}
}
