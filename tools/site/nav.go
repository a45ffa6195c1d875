package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// group is one heading of the navigation, with its pages in order.
type group struct {
	Title string
	Pages []string // sources, below the top of the repository
}

// navigation is what a reader is led along. Pages of docs/ that it does not name come at the end, so that none is lost.
var navigation = []group{
	{"Start", []string{"README.md", "docs/README.md", "docs/quickstart.md", "docs/recipes.md", "docs/flashsale.md", "docs/migrating.md", "docs/testing.md", "docs/glossary.md"}},
	{"Decide", []string{"docs/guarantees.md", "docs/production.md", "docs/comparison.md", "docs/backends.md", "docs/modules.md"}},
	{"Use", []string{"docs/settings.md", "docs/tuning.md", calculator, "docs/batching.md", "docs/middleware.md", "docs/errors.md"}},
	{"Operate", []string{"docs/operations.md", "docs/outage.md", "docs/cli.md"}},
	{"Backends", []string{"docs/redis.md", "docs/redlock.md", "docs/zookeeper.md", "docs/etcd.md", "docs/sql.md"}},
	{"Figures", []string{
		"benchmarks/README.md", "benchmarks/results/results.md", "benchmarks/results/redlock.md", "benchmarks/results/zookeeper.md",
		"benchmarks/results/etcd.md", "benchmarks/results/postgres.md", "benchmarks/results/mysql.md", "benchmarks/results/sqlite.md",
		"benchmarks/results/backends.md", "benchmarks/results/batch.md", "benchmarks/results/permits.md",
	}},
	{"Inside", []string{"docs/design.md", "docs/backend-howto.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}},
}

// calculator is the one page that is not written in Markdown.
const calculator = "docs/calculator"

// listed returns the groups with what is there, and all other pages of docs/ in a last one.
func listed(top string) ([]group, error) {
	var groups []group
	var known []string
	for _, g := range navigation {
		known = append(known, g.Pages...)
		g.Pages = slices.DeleteFunc(slices.Clone(g.Pages), func(page string) bool {
			_, err := os.Stat(filepath.Join(top, page))
			return page != calculator && err != nil
		})
		groups = append(groups, g)
	}
	files, err := filepath.Glob(filepath.Join(top, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	var rest []string
	for _, f := range files {
		if page := path.Join("docs", filepath.Base(f)); !slices.Contains(known, page) {
			rest = append(rest, page)
		}
	}
	if len(rest) > 0 {
		groups = append(groups, group{"More", rest})
	}
	return groups, nil
}

// unlisted are folders without packages that an application imports.
var unlisted = []string{"internal", "testdata", "example", "test", "tools", "benchmarks", "cmd"}

// packages returns the folders of what an application imports, "." for the top.
func packages(top string) (all []string, err error) {
	err = filepath.WalkDir(top, func(name string, d os.DirEntry, err error) error {
		if err != nil || name == top {
			return err
		}
		if d.IsDir() && (slices.Contains(unlisted, d.Name()) || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(d.Name(), ".go") && !strings.HasSuffix(d.Name(), "_test.go") {
			dir, err := filepath.Rel(top, filepath.Dir(name))
			all = append(all, filepath.ToSlash(dir))
			return err
		}
		return nil
	})
	slices.Sort(all)
	return slices.Compact(all), err
}

// target is the address of a page, below the top of the site.
func target(source string) string {
	if source == "README.md" {
		return "index.html"
	}
	return strings.TrimSuffix(source, ".md") + ".html"
}
