// Command site builds the documentation as pages that need no server: README.md is the first, docs/ the rest.
//
//	go -C tools run ./site -out ../site
//
// A link that leads nowhere, in any of these pages, is an error. Nothing is loaded from elsewhere.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("out", "../site", "`directory` to write, which is replaced")
	top := flag.String("top", "..", "`directory` of the repository")
	flag.Parse()
	pages, err := Build(*top, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("%d pages: open %s/index.html\n", pages, *out)
}
