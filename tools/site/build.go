package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	chroma "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/styles"
)

//go:embed assets
var assets embed.FS

const module = "github.com/wllock/wllock"

// repository is where links to files that are no pages lead.
const repository = "https://" + module

// site is one build.
type site struct {
	top, out string
	groups   []group
	packages []string
	pages    map[string]*page
	order    []string // of the pages, as the navigation has them
	copied   map[string]bool
	layout   *template.Template
}

// Build writes the site to a new directory, and reports how many pages it has. All broken links are in one error.
func Build(top, out string) (int, error) {
	s, err := load(top, out)
	if err != nil {
		return 0, err
	}
	if err := os.RemoveAll(out); err != nil {
		return 0, err
	}
	var all []error
	for _, source := range s.order {
		all = append(all, s.writePage(source))
	}
	all = append(all, s.writeAssets(), s.writeSearch())
	return len(s.order), errors.Join(all...)
}

func load(top, out string) (*site, error) {
	groups, err := listed(top)
	if err != nil {
		return nil, err
	}
	s := &site{top: top, out: out, groups: groups, pages: map[string]*page{}, copied: map[string]bool{}}
	if s.packages, err = packages(top); err != nil {
		return nil, err
	}
	if s.layout, err = template.ParseFS(assets, "assets/page.html", "assets/calculator.html"); err != nil {
		return nil, err
	}
	for _, g := range groups {
		s.order = append(s.order, g.Pages...)
		for _, source := range g.Pages {
			if source == calculator {
				s.pages[source] = &page{source: source, title: "Tuning calculator"}
				continue
			}
			text, err := os.ReadFile(filepath.Join(top, source))
			if err != nil {
				return nil, err
			}
			s.pages[source] = parse(source, text)
		}
	}
	return s, nil
}

// link is the new destination of a link on a page.
func (s *site) link(from, destination string) (string, error) {
	file, anchor, err := split(from, destination)
	if err != nil || file == "" {
		return destination, err
	}
	if to := s.pages[file]; to != nil {
		if anchor != "" && !to.hasAnchor(anchor) {
			return "", fmt.Errorf("%s: %s has no heading of that name", destination, file)
		}
		return relative(from, target(file), anchor), nil
	}
	info, err := os.Stat(filepath.Join(s.top, filepath.Clean("/"+file)))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: no such file", destination)
	case info.IsDir():
		return repository + "/tree/main/" + file, nil
	case slices.Contains([]string{".svg", ".png", ".webp", ".gif"}, path.Ext(file)):
		return relative(from, file, ""), s.copyFile(file)
	}
	if anchor != "" {
		file += "#" + anchor // the name of a test
	}
	return repository + "/blob/main/" + file, nil
}

// titled is what a link shows that has no text, or the name of a page's file: "" leaves the text.
func (s *site) titled(from, destination, text string) string {
	file, _, err := split(from, destination)
	if to := s.pages[file]; err == nil && to != nil && (text == "" || path.Base(text) == path.Base(file)) {
		return to.title
	}
	return ""
}

// relative is the address of a file of the site as seen from a page.
func relative(from, to, anchor string) string {
	up := strings.Repeat("../", strings.Count(target(from), "/"))
	if dir := path.Dir(target(from)); dir != "." && strings.HasPrefix(to, dir+"/") {
		up, to = "", strings.TrimPrefix(to, dir+"/")
	}
	if anchor != "" {
		to += "#" + anchor
	}
	return up + to
}

func (s *site) copyFile(file string) error {
	if s.copied[file] {
		return nil
	}
	s.copied[file] = true
	data, err := os.ReadFile(filepath.Join(s.top, file))
	if err != nil {
		return err
	}
	return s.write(file, data)
}

func (s *site) write(file string, data []byte) error {
	at := filepath.Join(s.out, filepath.FromSlash(file))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at, data, 0o644)
}

// view is what the layout shows.
type view struct {
	Title, Up, Source string
	Content           template.HTML
	Contents          []heading
	Groups            []viewGroup
	Before, After     *viewLink
}

type viewGroup struct {
	Title string
	Links []viewLink
}

type viewLink struct {
	Title, Href, Tip string
	Here             bool
}

func (s *site) writePage(source string) error {
	p := s.pages[source]
	v := view{Title: p.title, Up: strings.Repeat("../", strings.Count(target(source), "/")), Groups: s.links(source)}
	mistakes := p.relink(
		func(to string) (string, error) { return s.link(source, to) },
		func(to, text string) string { return s.titled(source, to, text) },
	)
	content, err := s.content(p)
	if err != nil {
		return err
	}
	v.Content = template.HTML(content) //nolint:gosec // of this repository
	if source != calculator {
		v.Source = repository + "/blob/main/" + source
	}
	v.Contents = p.contents()
	at := slices.Index(s.order, source)
	if at > 0 {
		v.Before = s.viewLink(source, s.order[at-1])
	}
	if at+1 < len(s.order) {
		v.After = s.viewLink(source, s.order[at+1])
	}
	var b bytes.Buffer
	if err := s.layout.ExecuteTemplate(&b, "page.html", v); err != nil {
		return err
	}
	return errors.Join(append(mistakes, s.write(target(source), b.Bytes()))...)
}

func (s *site) content(p *page) (string, error) {
	if p.source == calculator {
		var b strings.Builder
		err := s.layout.ExecuteTemplate(&b, "calculator.html", nil)
		return b.String(), err
	}
	return p.html()
}

func (s *site) links(from string) []viewGroup {
	var all []viewGroup
	for _, g := range s.groups {
		vg := viewGroup{Title: g.Title}
		for _, source := range g.Pages {
			link := *s.viewLink(from, source)
			link.Title, _, _ = strings.Cut(link.Title, ": ") // as in "etcd: wllock beside its own locks"
			vg.Links = append(vg.Links, link)
		}
		if len(vg.Links) > 0 {
			all = append(all, vg)
		}
	}
	var vg viewGroup
	for _, dir := range s.packages {
		link := viewLink{Title: dir, Href: repository + "/tree/main/" + dir, Tip: "go doc " + path.Join(module, dir)}
		if dir == "." {
			link.Title, link.Href = path.Base(module), repository
		}
		vg.Links = append(vg.Links, link)
	}
	if vg.Title = "Packages"; len(vg.Links) > 0 {
		all = append(all, vg)
	}
	return all
}

func (s *site) viewLink(from, to string) *viewLink {
	return &viewLink{Title: s.pages[to].title, Href: relative(from, target(to), ""), Here: from == to}
}

// writeAssets writes the style with the colours of code for both themes, and the scripts.
func (s *site) writeAssets() error {
	files, err := assets.ReadDir("assets")
	if err != nil {
		return err
	}
	for _, f := range files {
		data, err := assets.ReadFile("assets/" + f.Name())
		if err != nil {
			return err
		}
		switch path.Ext(f.Name()) {
		case ".css":
			if data, err = withCodeColours(data); err != nil {
				return err
			}
			fallthrough
		case ".js":
			if err := s.write("assets/"+f.Name(), data); err != nil {
				return err
			}
		}
	}
	return nil
}

// withCodeColours adds a style of chroma for each theme, each inside of selectors for it: what one of them leaves out must not be
// taken from the other.
func withCodeColours(css []byte) ([]byte, error) {
	var b bytes.Buffer
	b.Write(css)
	format := chroma.New(chroma.WithClasses(true))
	for theme, other := range map[string]string{"light": "dark", "dark": "light"} {
		var colours bytes.Buffer
		if err := format.WriteCSS(&colours, styles.Get(codeStyles[theme])); err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, ":root[data-theme=%s] {\n%s}\n", theme, &colours)
		fmt.Fprintf(&b, "@media (prefers-color-scheme: %s) {\n:root:not([data-theme=%s]) {\n%s}\n}\n", theme, other, &colours)
	}
	return b.Bytes(), nil
}

// codeStyles are names of chroma.
var codeStyles = map[string]string{"light": "github", "dark": "github-dark"}

// entry is one section in the index of the search.
type entry struct {
	Page    string  `json:"p"`
	Heading string  `json:"h"`
	Address string  `json:"a"`
	Text    string  `json:"t"`
	Weight  float64 `json:"w,omitempty"` // 0 is 1
}

// writeSearch writes the index as a script, because a page from a file may load no JSON.
func (s *site) writeSearch() error {
	var index []entry
	for _, g := range s.groups {
		for _, source := range g.Pages {
			weight := 0.0 // less for figures, lists and what is written for contributors
			if slices.Contains([]string{"Figures", "Inside"}, g.Title) || path.Base(source) == "README.md" && source != "README.md" {
				weight = 0.4
			}
			for _, sec := range s.pages[source].sections() {
				address := target(source)
				if sec.ID != "" {
					address += "#" + sec.ID
				}
				index = append(index, entry{s.pages[source].title, sec.Heading, address, sec.Text, weight})
			}
		}
	}
	data, err := json.Marshal(index)
	if err != nil {
		return err
	}
	return s.write("assets/search-index.js", slices.Concat([]byte("window.searchIndex = "), data, []byte(";\n")))
}
