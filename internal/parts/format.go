package parts

import (
	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/keyless"
)

// OtherFormat is the error of a request that meets what another version of wllock keeps, in a format that this one does not know. The
// request has done nothing. Each backend has a constant Format. What is written in another format says so where a request looks first.
func OtherFormat(room string, found, known int) error {
	return distributed.Unavailable(room, keyless.Errorf("another version of wllock has this lock, in format %d, and this process knows format %d: "+
		"all that share locks need versions of one format", found, known), distributed.ErrRefused)
}
