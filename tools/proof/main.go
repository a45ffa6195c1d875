// Command proof writes docs/proof.md: what has been run against the promises of wllock, what was found, and which test holds it.
//
//	go -C tools run ./proof
//
// The page is made of the lists beside this file (faults.go, defects.go, others.go), which are edited by hand, and of what runs leave in
// test/results. What has not been run is said to be missing. A test that a list names has to exist.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(".."); err != nil { // go -C tools
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

func run(top string) error {
	text, err := page(top)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(top, "docs", "proof.md"), []byte(text), 0o644)
}
