// Package repo knows the modules of this repository, and which of them are released.
package repo

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// Path is the module path of the root.
const Path = "github.com/wllock/wllock"

// unreleased are directories whose modules nobody imports: programs and tests that are run from a clone.
var unreleased = []string{"example", "benchmarks", "test"}

// Module is a module of go.work.
type Module struct {
	Dir      string // below the top of the repository, with slashes; "." is the root
	Path     string
	Requires []string // modules of this repository that it requires
}

// Released reports whether versions of m are tagged.
func (m Module) Released() bool {
	return !slices.Contains(unreleased, strings.Split(m.Dir, "/")[0])
}

// Tag is the name by which git, and so the go command, finds a version of m.
func (m Module) Tag(version string) string {
	return path.Join(strings.TrimPrefix(m.Dir, "."), version)
}

// Own reports whether a module path belongs to this repository.
func Own(modulePath string) bool {
	return modulePath == Path || strings.HasPrefix(modulePath, Path+"/")
}

// Modules returns the modules of go.work, each after all that it requires.
func Modules(top string) ([]Module, error) {
	data, err := os.ReadFile(filepath.Join(top, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", data, nil)
	if err != nil {
		return nil, err
	}
	var all []Module
	for _, use := range work.Use {
		m, err := read(top, path.Clean(use.Path))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return inOrder(all)
}

func read(top, dir string) (Module, error) {
	name := filepath.Join(top, dir, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return Module{}, err
	}
	f, err := modfile.Parse(name, data, nil)
	if err != nil {
		return Module{}, err
	}
	m := Module{Dir: dir, Path: f.Module.Mod.Path}
	for _, r := range f.Require {
		if Own(r.Mod.Path) {
			m.Requires = append(m.Requires, r.Mod.Path)
		}
	}
	return m, nil
}

// inOrder puts each module after those that it requires, and refuses a released one that requires an unreleased one.
func inOrder(all []Module) ([]Module, error) {
	byPath := map[string]Module{}
	for _, m := range all {
		byPath[m.Path] = m
	}
	var done []Module
	placed := map[string]bool{}
	for len(done) < len(all) {
		before := len(done)
		for _, m := range all {
			ready := !slices.ContainsFunc(m.Requires, func(p string) bool { return !placed[p] })
			if placed[m.Path] || !ready {
				continue
			}
			for _, p := range m.Requires {
				if m.Released() && !byPath[p].Released() {
					return nil, fmt.Errorf("%s is released and requires %s, which is not", m.Path, p)
				}
			}
			placed[m.Path], done = true, append(done, m)
		}
		if len(done) == before {
			return nil, fmt.Errorf("of the %d modules of go.work, %d require each other in a circle, or one that is not there", len(all), len(all)-before)
		}
	}
	return done, nil
}
