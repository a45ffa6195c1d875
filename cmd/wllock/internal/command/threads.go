package command

import (
	"runtime"
	"sync"
)

const (
	// procs is how much of wllock runs at a time. A wrapper needs no more, and each takes a thread.
	procs = 2
	// spareThreads is more than the system calls in which wllock is at a time: its command's end, standard error, a file, a name server.
	spareThreads = procs + 6
)

// startThreads starts the threads that a run needs before it has a lock. Go's runtime starts them when it wants one and keeps them, and
// ends the program where the system refuses: when a command has used up the limit of processes, wllock would be gone and its lock left.
func startThreads() {
	runtime.GOMAXPROCS(min(procs, runtime.GOMAXPROCS(0)))
	var all sync.WaitGroup
	together := make(chan struct{})
	var here sync.WaitGroup
	here.Add(spareThreads)
	for range spareThreads {
		all.Go(func() {
			runtime.LockOSThread() // so each has one of its own until all are there
			defer runtime.UnlockOSThread()
			here.Done()
			<-together
		})
	}
	here.Wait()
	close(together)
	all.Wait()
}
