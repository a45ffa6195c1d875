package redislock

import (
	"hash/fnv"
	"strconv"

	"github.com/wllock/wllock/distributed"
)

// keyedMark is what no Locker has in its id.
const keyedMark = "/"

// keyed names the Redis key of the lock, if that is not its full name. Two names may have the same key: then an instance has two
// attempts for one key, which the scripts know by their instances. So each name is an instance of its own.
func (b *Backend) keyed(req distributed.Request) distributed.Request {
	if b.key == nil || req.Key == "" || req.Instance == "" { // the latter are refused
		return req
	}
	name := fnv.New64a()
	_, _ = name.Write([]byte(req.Key))
	req.Instance += keyedMark + strconv.FormatUint(name.Sum64(), 36)
	req.Key = b.key(req.Key)
	return req
}
