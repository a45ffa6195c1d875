// Command release prepares a release of all modules and tries it: it makes the commit that is tagged in a clone, fetches every
// module from there through the go command, as an importer would, and builds, vets and installs what it got.
// It is a dry run unless -tag is given, and never pushes.
//
//	go -C tools run ./release -version v0.1.0
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	var r release
	flag.StringVar(&r.version, "version", "", "`version` to release, as v0.1.0")
	flag.BoolVar(&r.tag, "tag", false, "after a successful trial, put the commit and its tags into this repository; nothing is pushed")
	flag.BoolVar(&r.draft, "draft", false, "try it although the changelog has no section for the version, or the working tree is not clean")
	flag.Parse()
	if err := r.run(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run tries the release in a temporary directory, which it removes: the modules' caches take a gigabyte.
func (r *release) run() (err error) {
	if r.top, err = filepath.Abs(".."); err != nil { // go -C tools
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "wllock-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	for _, step := range []func() error{r.prepare, r.vet, r.importAll, r.install} {
		if err := step(); err != nil {
			return err
		}
	}
	return r.finish()
}
