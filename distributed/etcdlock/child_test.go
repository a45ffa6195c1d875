package etcdlock

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
)

// childEnv has the URL for a process that holds a lock until it is killed, childLimitEnv the limit if it is a permit.
const childEnv, childLimitEnv = "ETCDLOCK_CHILD", "ETCDLOCK_CHILD_LIMIT"

// child does the work of a child process, and reports whether this is one.
func child() bool {
	url, is := strings.CutPrefix(os.Getenv(childEnv), "etcd:")
	if !is {
		return false
	}
	b, err := Open("etcd:" + url)
	if err == nil {
		req := distributed.Request{Key: "k", Instance: "child", TTL: ttl}
		if req.Limit, _ = strconv.Atoi(os.Getenv(childLimitEnv)); req.Limit > 0 {
			req.Mode = distributed.Shared
		}
		var l distributed.Lease
		l, _, err = b.Enter(context.Background(), req)
		if l != nil {
			n, _ := l.NextFence()
			fmt.Println("held", n)
			<-l.Lost() // the parent kills it long before, or stops it
			fmt.Println("lost")
			time.Sleep(time.Minute)
		}
	}
	fmt.Println(err)
	return true
}
