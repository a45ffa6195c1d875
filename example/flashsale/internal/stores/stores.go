// Package stores says what a lock service of the flash sale is.
package stores

import (
	"context"

	"github.com/wllock/wllock/distributed"
)

// Store is a kind of lock service.
type Store struct {
	Allowed string   // its URLs, for people
	Schemes []string // of its URLs
	Open    func(url string) (distributed.Backend, error)
	Migrate func(ctx context.Context, url string) error // creates what it needs; nil: it needs nothing
}
