package testlocker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/wllock/wllock/distributed/driver/register"
)

// Expire has the owners of a lock in a document be dead. Its queue stays.
func Expire(s register.Store, key string) error {
	ctx := context.Background()
	for {
		d, err := s.Get(ctx, key)
		if err != nil || d.Version == "" {
			return err
		}
		var lock map[string]any
		in := json.NewDecoder(bytes.NewReader(d.Data))
		in.UseNumber() // a fence is longer than a float64 is exact
		if err := in.Decode(&lock); err != nil {
			return err
		}
		if delete(lock, "owners"); lock["queue"] != nil {
			lock["owners"] = []map[string]any{{"id": "nobody", "instance": "nobody", "ttl": 1}} // whose turn is over at once
		}
		if deleter, ok := s.(register.Deleter); ok && lock["queue"] == nil {
			err = deleter.Delete(ctx, key, d.Version)
		} else {
			data, _ := json.Marshal(lock)
			_, err = s.Put(ctx, key, data, d.Version, time.Hour)
		}
		if !errors.Is(err, register.ErrConflict) {
			return err
		}
	}
}
