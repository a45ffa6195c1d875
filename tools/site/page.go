package main

import (
	"bytes"
	"fmt"
	"net/url"
	"path"
	"strings"

	chroma "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/yuin/goldmark"
	highlighting "github.com/yuin/goldmark-highlighting/v2"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// page is one Markdown file, parsed.
type page struct {
	source   string // below the top of the repository
	title    string
	markdown []byte
	doc      ast.Node
	headings []heading
}

type heading struct {
	Level    int
	Text, ID string
}

// section is the text below a heading, for the search.
type section struct {
	Heading, ID, Text string
}

var markdown = goldmark.New(
	goldmark.WithExtensions(extension.GFM, highlighting.NewHighlighting(
		highlighting.WithFormatOptions(chroma.WithClasses(true)), highlighting.WithGuessLanguage(false),
	)),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(html.WithUnsafe()),
)

func parse(source string, text []byte) *page {
	p := &page{source: source, markdown: text, title: source}
	p.doc = markdown.Parser().Parse(reader(text), parser.WithContext(parser.NewContext(parser.WithIDs(&ids{seen: map[string]int{}}))))
	p.dropBadges()
	p.readHeadings()
	return p
}

// dropBadges replaces pictures that lie elsewhere by their words: the pages load nothing.
func (p *page) dropBadges() {
	var all []*ast.Image
	_ = ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if image, ok := n.(*ast.Image); ok && entering && bytes.HasPrefix(image.Destination, []byte("https:")) {
			all = append(all, image)
		}
		return ast.WalkContinue, nil
	})
	for _, image := range all {
		image.Parent().ReplaceChild(image.Parent(), image, ast.NewString([]byte(p.textOf(image))))
	}
}

func reader(b []byte) text.Reader { return text.NewReader(b) }

func (p *page) readHeadings() {
	for n := p.doc.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			continue
		}
		id, _ := h.AttributeString("id")
		found := heading{h.Level, p.textOf(h), string(id.([]byte))}
		p.headings = append(p.headings, found)
		if h.Level == 1 {
			p.title = found.Text
		}
	}
}

// contents returns the headings that the page lists of itself: none if it is short.
func (p *page) contents() (all []heading) {
	chapters := 0
	for _, h := range p.headings {
		if h.Level == 2 {
			chapters++
		}
		if h.Level == 2 || h.Level == 3 {
			all = append(all, h)
		}
	}
	if p.doc == nil || chapters <= 4 && len(strings.Fields(p.textOf(p.doc))) <= 1000 {
		return nil
	}
	return all
}

// sections returns the text below each heading, as a reader sees it: so after relink.
func (p *page) sections() (all []section) {
	if p.doc == nil {
		return nil
	}
	var b strings.Builder
	now := section{}
	flush := func() {
		if now.Text = strings.Join(strings.Fields(b.String()), " "); now.Text != "" || now.Heading != "" {
			all = append(all, now)
		}
		b.Reset()
	}
	headings := p.headings
	for n := p.doc.FirstChild(); n != nil; n = n.NextSibling() {
		if n.Kind() != ast.KindHeading {
			p.plain(&b, n)
			continue
		}
		flush()
		now = section{Heading: headings[0].Text, ID: headings[0].ID}
		headings = headings[1:]
	}
	flush()
	return all
}

func (p *page) textOf(n ast.Node) string {
	var b strings.Builder
	p.plain(&b, n)
	return strings.TrimSpace(b.String())
}

// plain writes what a reader sees of n, without marks.
func (p *page) plain(b *strings.Builder, n ast.Node) {
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(p.markdown))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			b.Write(n.Lines().Value(p.markdown))
		}
		return ast.WalkContinue, nil
	})
}

// hasAnchor reports whether #id leads somewhere on the page.
func (p *page) hasAnchor(id string) bool {
	for _, h := range p.headings {
		if h.ID == id {
			return true
		}
	}
	return bytes.Contains(p.markdown, []byte(`id="`+id+`"`)) || bytes.Contains(p.markdown, []byte(`name="`+id+`"`))
}

// relink replaces the destination of each link and image, and the text of a link for which titled has one. It returns the mistakes.
func (p *page) relink(replace func(to string) (string, error), titled func(to, text string) string) (mistakes []error) {
	if p.doc == nil {
		return nil
	}
	_ = ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var at *[]byte
		switch n := n.(type) {
		case *ast.Link:
			at = &n.Destination
			if title := titled(string(*at), p.textOf(n)); title != "" {
				n.RemoveChildren(n)
				n.AppendChild(n, ast.NewString([]byte(title)))
			}
		case *ast.Image:
			at = &n.Destination
		}
		if at == nil {
			return ast.WalkContinue, nil
		}
		to, err := replace(string(*at))
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %w", p.source, err))
		}
		*at = []byte(to)
		return ast.WalkContinue, nil
	})
	return mistakes
}

func (p *page) html() (string, error) {
	var b bytes.Buffer
	err := markdown.Renderer().Render(&b, p.markdown, p.doc)
	return b.String(), err
}

// split resolves a relative link of a page: the file below the top of the repository, and the anchor. External ones are "".
func split(source, destination string) (file, anchor string, err error) {
	u, err := url.Parse(destination)
	if err != nil || u.IsAbs() || u.Host != "" {
		return "", "", err
	}
	if u.Path == "" {
		return source, u.Fragment, nil
	}
	return path.Join(path.Dir(source), u.Path), u.Fragment, nil
}

// ids names headings as GitHub does, so that a link works there and here.
type ids struct{ seen map[string]int }

func (s *ids) Generate(value []byte, _ ast.NodeKind) []byte {
	id := anchorOf(string(util.UnescapePunctuations(value)))
	n := s.seen[id]
	s.seen[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

func (s *ids) Put([]byte) {}
