package archtest

import (
	"fmt"
	"slices"
	"strings"
)

const module = "github.com/wllock/wllock"

// pkg is what `go list` says of a package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string // by the package itself
	Deps       []string // all that it links
	Name       string
	Module     *struct{ Path string }
}

// graph is the packages of this module and all that they link, by import path.
type graph map[string]pkg

// violations returns what in the graph the table forbids, a line each, in order.
func violations(g graph, rooms []room) []string {
	var found []string
	for path, p := range g {
		dir, ok := ownDir(path)
		if !ok {
			continue
		}
		r := roomOf(dir, rooms)
		if r == nil {
			found = append(found, dir+" is in no room: add it to the table of CONTRIBUTING.md")
			continue
		}
		found = append(found, arrows(g, dir, p, r, rooms)...)
		found = append(found, links(g, dir, p, r)...)
	}
	slices.Sort(found)
	return found
}

// arrows checks what a package imports itself.
func arrows(g graph, dir string, p pkg, r *room, rooms []room) []string {
	var found []string
	for _, path := range p.Imports {
		if to, ok := ownDir(path); ok {
			if target := roomOf(to, rooms); target != nil && target != r && !r.mayKnow(target, rooms) {
				found = append(found, fmt.Sprintf("%s imports %s: %s may know %v", dir, to, r.path, r.knows))
			}
		} else if !g.standard(path) && !below(path, r.imports) {
			found = append(found, fmt.Sprintf("%s imports %s: %s may import %v", dir, path, r.path, r.imports))
		}
	}
	return found
}

// links checks all that comes with a package.
func links(g graph, dir string, p pkg, r *room) []string {
	var found []string
	for _, path := range p.Deps {
		if _, ok := ownDir(path); ok || g.standard(path) {
			continue
		}
		if !r.program && below(path, neverLinked) {
			found = append(found, fmt.Sprintf("%s links %s, which is for tests and applications", dir, path))
		} else if r.sealed != nil && !below(path, r.sealed) {
			found = append(found, fmt.Sprintf("%s links %s: with %s come only %v", dir, path, r.path, r.sealed))
		}
	}
	return found
}

// ownDir returns the directory of a package of this module.
func ownDir(path string) (dir string, ok bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

func (g graph) standard(path string) bool {
	p, known := g[path]
	return known && p.Standard || path == "C" || path == "unsafe"
}

// below reports whether path is one of roots or in a directory under one.
func below(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return path == root || strings.HasPrefix(path, root+"/")
	})
}

// roomOf is the innermost room around dir, or nil.
func roomOf(dir string, rooms []room) *room {
	var found *room
	for i := range rooms {
		r := &rooms[i]
		if dir == r.path || !r.hasRooms(rooms) && strings.HasPrefix(dir, r.path+"/") {
			if found == nil || len(r.path) > len(found.path) {
				found = r
			}
		}
	}
	return found
}

// hasRooms reports whether other rooms lie below this one, so that each directory there needs one. A program's do not.
func (r *room) hasRooms(rooms []room) bool {
	return r.path == "." || !r.program && slices.ContainsFunc(rooms, func(o room) bool { return strings.HasPrefix(o.path, r.path+"/") })
}

// mayKnow reports whether r may import target.
func (r *room) mayKnow(target *room, rooms []room) bool {
	if slices.Contains(r.knows, target.path) {
		return true
	}
	return slices.Contains(r.knows, public) && !strings.HasPrefix(target.path, "internal/") &&
		indexOf(target.path, rooms) < indexOf(r.path, rooms)
}

func indexOf(path string, rooms []room) int {
	return slices.IndexFunc(rooms, func(r room) bool { return r.path == path })
}
