package local_test

import "os"

// scale is a tenth of full, or all of it in the long run of `make test-long`.
func scale(full int) int {
	if os.Getenv("WLLOCK_LONG") != "" {
		return full
	}
	return full / 10
}
