package zklock

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
)

// childEnv has the address and the root for a process that holds a lock until it is killed, childLimitEnv the limit if it is a
// permit.
const childEnv, childLimitEnv = "ZKLOCK_CHILD", "ZKLOCK_CHILD_LIMIT"

// child does the work of a child process, and reports whether this is one.
func child() bool {
	addr, root, is := strings.Cut(os.Getenv(childEnv), " ")
	if !is {
		return false
	}
	b, err := New([]string{addr}, WithRoot(root))
	if err == nil {
		req := distributed.Request{Key: "k", Instance: "child", TTL: ttl}
		if req.Limit, _ = strconv.Atoi(os.Getenv(childLimitEnv)); req.Limit > 0 {
			req.Mode = distributed.Shared
		}
		var l distributed.Lease
		l, _, err = b.Enter(context.Background(), req)
		if l != nil {
			fmt.Println("held")
			time.Sleep(time.Minute) // the parent kills it long before
		}
	}
	fmt.Println(err)
	return true
}
