package zklock

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
)

// childEnv has the address and the root for a process that holds a lock until it is killed.
const childEnv = "ZKLOCK_CHILD"

// child does the work of a child process, and reports whether this is one.
func child() bool {
	addr, root, is := strings.Cut(os.Getenv(childEnv), " ")
	if !is {
		return false
	}
	b, err := New([]string{addr}, WithRoot(root))
	if err == nil {
		var l distributed.Lease
		l, _, err = b.Enter(context.Background(), distributed.Request{Key: "k", Instance: "child", TTL: ttl})
		if l != nil {
			fmt.Println("held")
			time.Sleep(time.Minute) // the parent kills it long before
		}
	}
	fmt.Println(err)
	return true
}
