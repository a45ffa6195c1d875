// Command figures prints the shape of packages: how their files lean on each other, and how large things are.
//
//	go -C tools run ./figures .. ../local ../internal/tenure
//
// An arrow goes from a file to another one of its package that defines what it uses. Two files are mutual if there are
// arrows both ways. The arrows up are those that remain against the best order of the files that is found. Test files
// do not count.
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	fmt.Printf("%-40s %5s %6s %6s %6s %3s %5s %8s %4s %4s %5s\n",
		"package", "files", "lines", "arrows", "mutual", "up", "funcs", "med/p90", "max", ">40", ">400")
	for _, dir := range os.Args[1:] {
		s, err := measure(dir)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(s)
	}
}

// shape is what is measured of a package.
type shape struct {
	dir                string
	files, lines, long int
	arrows, mutual, up int
	funcs              []int // lines of each, sorted
}

func (s shape) String() string {
	at := func(q int) int {
		if len(s.funcs) == 0 {
			return 0
		}
		return s.funcs[min(len(s.funcs)*q/100, len(s.funcs)-1)]
	}
	over := 0
	for _, n := range s.funcs {
		if n > 40 {
			over++
		}
	}
	return fmt.Sprintf("%-40s %5d %6d %6d %6d %3d %5d %4d/%3d %4d %4d %5d", s.dir, s.files, s.lines,
		s.arrows, s.mutual, s.up, len(s.funcs), at(50), at(90), at(100), over, s.long)
}

func measure(dir string) (shape, error) {
	s := shape{dir: dir}
	set := token.NewFileSet()
	var files []*ast.File
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return s, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			return s, err
		}
		files = append(files, f)
		lines := set.File(f.Pos()).LineCount()
		s.files, s.lines = s.files+1, s.lines+lines
		if lines > 400 {
			s.long++
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				s.funcs = append(s.funcs, set.Position(fn.End()).Line-set.Position(fn.Pos()).Line+1)
			}
		}
	}
	slices.Sort(s.funcs)
	s.arrows, s.mutual, s.up = count(arrows(set, files))
	return s, nil
}

// edge is an arrow between two files.
type edge struct{ from, to string }

// arrows finds them by the types of what is defined in the package. What comes from elsewhere stays unknown.
func arrows(set *token.FileSet, files []*ast.File) map[edge]bool {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: nobody{}, Error: func(error) {}, DisableUnusedImportCheck: true}
	pkg, _ := config.Check("p", set, files, info)
	found := map[edge]bool{}
	for use, object := range info.Uses {
		if object.Pkg() != pkg || !object.Pos().IsValid() {
			continue
		}
		e := edge{set.Position(use.Pos()).Filename, set.Position(object.Pos()).Filename}
		if e.from != e.to {
			found[e] = true
		}
	}
	return found
}

// nobody imports every package as an empty one.
type nobody struct{}

func (nobody) Import(path string) (*types.Package, error) {
	pkg := types.NewPackage(path, filepath.Base(path))
	pkg.MarkComplete()
	return pkg, nil
}

// count also looks for an order of the files against which few arrows run: it starts with those that are used least and
// moves single files as long as that helps.
func count(found map[edge]bool) (arrows, mutual, up int) {
	used, all := map[string]int{}, map[string]bool{}
	for e := range found {
		all[e.from], all[e.to] = true, true
		used[e.to]++
		used[e.from]--
		if found[edge{e.to, e.from}] && e.from < e.to {
			mutual++
		}
	}
	order := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(used[a], used[b]), cmp.Compare(a, b)) })
	best := against(found, order)
	for better := true; better; {
		better = false
		for from := range order {
			for to := range order {
				next := slices.Clone(order)
				file := next[from]
				next = slices.Insert(slices.Delete(next, from, from+1), to, file)
				if n := against(found, next); n < best {
					order, best, better = next, n, true
				}
			}
		}
	}
	return len(found), mutual, best
}

func against(found map[edge]bool, order []string) (n int) {
	at := map[string]int{}
	for i, file := range order {
		at[file] = i
	}
	for e := range found {
		if at[e.from] > at[e.to] {
			n++
		}
	}
	return n
}
