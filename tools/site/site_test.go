package main

import (
	"html"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// built is the site of this repository, built once.
func built(t *testing.T) (out string, files map[string]string) {
	t.Helper()
	out = t.TempDir()
	_, err := Build("../..", out)
	require.NoError(t, err, "every relative link and anchor in README.md and docs/ leads somewhere")
	files = map[string]string{}
	require.NoError(t, filepath.WalkDir(out, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		rel, _ := filepath.Rel(out, name)
		files[filepath.ToSlash(rel)] = string(text)
		return err
	}))
	return out, files
}

var (
	addresses = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	loads     = regexp.MustCompile(`<(?:script|img|link|iframe|source)[^>]*(?:href|src)="(?:https?:)?//`)
	anchors   = regexp.MustCompile(`\b(?:id|name)="([^"]*)"`)
)

// TestEveryAddressLeads looks at what came out, so also at what the layout and the calculator link to.
func TestEveryAddressLeads(t *testing.T) {
	_, files := built(t)
	for name, text := range files {
		if path.Ext(name) != ".html" {
			continue
		}
		for id, n := range counted(anchors.FindAllString(text, -1)) {
			assert.Equal(t, 1, n, "%s: %s", name, id)
		}
		assert.NotRegexp(t, loads, text, "%s loads something from elsewhere", name)
		for _, m := range addresses.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], ":") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			to := path.Join(path.Dir(name), file)
			if file == "" {
				to = name
			}
			if assert.Contains(t, files, to, "%s links to %s", name, m[1]) && anchor != "" {
				assert.Contains(t, anchors.FindAllString(files[to], -1), `id="`+anchor+`"`, "%s links to %s", name, m[1])
			}
		}
	}
}

var (
	htmlTag     = regexp.MustCompile(`<[^>]*>`)
	pageTitle   = regexp.MustCompile(`<title>(.*?)(?: · wllock)?</title>`)
	mainHeading = regexp.MustCompile(`(?s)<h1[^>]*>(.*?)</h1>`)
	navigated   = regexp.MustCompile(`aria-current="page">([^<]*)<`)
	article     = regexp.MustCompile(`(?s)<article>.*</article>`)
	pageLinks   = regexp.MustCompile(`(?s)<a href="([^":]*\.html)(#[^"]*)?">(.*?)</a>`)
)

// shown is the first group of a match, as a reader sees it.
func shown(t *testing.T, of *regexp.Regexp, text string) string {
	t.Helper()
	m := of.FindStringSubmatch(text)
	require.NotNil(t, m, "%v", of)
	return html.UnescapeString(htmlTag.ReplaceAllString(m[1], ""))
}

// TestTitlesAgree: a page has one name, in its heading, the window, the navigation and the lists of README.md and docs/README.md.
// The navigation leaves out what follows a colon.
func TestTitlesAgree(t *testing.T) {
	_, files := built(t)
	for name, text := range files {
		if path.Ext(name) != ".html" {
			continue
		}
		title := shown(t, mainHeading, text)
		assert.Equal(t, title, shown(t, pageTitle, text), name)
		short, _, _ := strings.Cut(title, ": ")
		assert.Equal(t, short, shown(t, navigated, text), name)
		for _, link := range pageLinks.FindAllStringSubmatch(article.FindString(text), -1) {
			to, says := path.Join(path.Dir(name), link[1]), html.UnescapeString(htmlTag.ReplaceAllString(link[3], ""))
			assert.False(t, says == "" || strings.HasSuffix(says, ".md"), "%s links to %s as %q", name, to, says)
			if link[2] == "" && (name == "index.html" || name == "docs/README.html") {
				assert.True(t, strings.EqualFold(shown(t, mainHeading, files[to]), says), "%s links to %s as %q", name, to, says)
			}
		}
	}
}

// TestEveryPackageIsInTheNavigation, which leads to its folder and names the command that shows its documentation.
func TestEveryPackageIsInTheNavigation(t *testing.T) {
	_, files := built(t)
	modules, err := os.ReadFile("../../docs/modules.md")
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\|").FindAllStringSubmatch(string(modules), -1)
	require.Greater(t, len(rows), 20)
	listed := regexp.MustCompile(`<a href="([^"]*)" title="go doc ([^"]*)">([^<]*)</a>`).FindAllStringSubmatch(files["docs/sql.html"], -1)
	require.Len(t, listed, len(rows))
	for _, row := range rows {
		want := []string{repository + "/tree/main/" + row[1], module + "/" + row[1], row[1]}
		if row[1] == "wllock" {
			want = []string{repository, module, row[1]}
		}
		require.True(t, slices.ContainsFunc(listed, func(link []string) bool { return slices.Equal(link[1:], want) }), "%v", want)
	}
}

func counted(all []string) map[string]int {
	n := map[string]int{}
	for _, one := range all {
		if strings.HasPrefix(one, "id=") {
			n[one]++
		}
	}
	return n
}

func TestBrokenLinksAreFound(t *testing.T) {
	top := t.TempDir()
	for name, text := range map[string]string{
		"README.md":     "# Shop\n[ok](docs/a.md#two-words) [docs/a.md](docs/a.md) [](docs/a.md) [code](main.go) [away](https://example.com/x) ![here](p.svg)",
		"docs/a.md":     "# A & B\n## Two words\n[`README.md`](../README.md#shop) [gone](../gone.go) ![gone](gone.png)",
		"docs/extra.md": "# Extra\n[none](a.md#three-words) [self](#extra) [out](../../etc/passwd)",
		"main.go":       "package main", "p.svg": "<svg/>",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(top, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(top, name), []byte(text), 0o644))
	}
	out := filepath.Join(top, "site")
	pages, err := Build(top, out)
	require.Equal(t, 4, pages, "with the calculator; extra.md is in no group and yet there")
	require.Len(t, strings.Split(err.Error(), "\n"), 4, "%v", err)
	for _, mistake := range []string{
		"docs/a.md: ../gone.go: no such file", "docs/a.md: gone.png: no such file",
		"docs/extra.md: a.md#three-words: docs/a.md has no heading of that name", "docs/extra.md: ../../etc/passwd: no such file",
	} {
		require.ErrorContains(t, err, mistake)
	}
	index, err := os.ReadFile(filepath.Join(out, "index.html"))
	require.NoError(t, err)
	for _, want := range []string{`href="docs/a.html#two-words"`, `href="` + repository + `/blob/main/main.go"`, `src="p.svg"`, `>Extra</a>`} {
		require.Contains(t, string(index), want)
	}
	require.Equal(t, 2, strings.Count(string(index), `<a href="docs/a.html">A &amp; B</a> `), "the title for a file's name, and for no text")
	found, err := os.ReadFile(filepath.Join(out, "assets/search-index.js"))
	require.NoError(t, err)
	require.Contains(t, string(found), `"ok A \u0026 B A \u0026 B code away here"`)
}

func TestLongPagesHaveContents(t *testing.T) {
	for text, want := range map[string]int{
		"# A\n## B\n## C\n### D\n## E\n## F":           0,
		"# A\n## B\n## C\n### D\n## E\n## F\n## G":     6,
		"# A\n## B\n" + strings.Repeat("word ", 998):   0,
		"# A\n## B\n" + strings.Repeat("word ", 999):   1,
		"# A\n" + strings.Repeat("word ", 2000):        0,
		"# A\n#### B\n" + strings.Repeat("word ", 999): 0,
	} {
		require.Len(t, parse("x.md", []byte(text)).contents(), want, "%.60s", text)
	}
	_, files := built(t)
	require.Contains(t, files["docs/recipes.html"], `<details class="contents" id="ui-contents">`)
	require.NotContains(t, files["docs/glossary.html"], `id="ui-contents"`)
}

func TestAnchorsAreThoseOfTheHost(t *testing.T) {
	for heading, want := range map[string]string{
		"What is promised":             "what-is-promised",
		"`Do`, `Guard` & [more](x.md)": "do-guard--more",
		"Coming from wllock (Java)":    "coming-from-wllock-java",
		"snake_case – Größe 2":         "snake_case--größe-2",
	} {
		require.Equal(t, want, anchorOf(heading))
	}
	p := parse("x.md", []byte("# Twice\n## Twice\n## `a.b`: c?\n"))
	require.True(t, p.hasAnchor("twice-1"))
	require.True(t, p.hasAnchor("ab-c"))
	require.False(t, p.hasAnchor("twice-2"))
}
