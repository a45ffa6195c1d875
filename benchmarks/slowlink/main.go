// Command slowlink is a proxy to a server on loopback that delays all traffic by the same time each way, until its standard
// input ends. It prints its own address. Measurements of other modules use it, so that the proxy has a process of its own.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/wllock/wllock/benchmarks/internal/load"
	"github.com/wllock/wllock/benchmarks/internal/slowlink"
)

func main() {
	delay := flag.Duration("delay", load.Delay, "each way")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: slowlink [-delay d] host:port")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	p, err := slowlink.Start(flag.Arg(0), *delay)
	if err != nil {
		fmt.Fprintf(os.Stderr, "slowlink: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(p.Addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
	p.Stop()
}
