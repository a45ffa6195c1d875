package site

import (
	"fmt"
	"html"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	module     = "github.com/wllock/wllock"
	repository = "https://" + module
)

// built is the site of this repository, or of another.
func built(t *testing.T, top string) (out string, files map[string]string) {
	t.Helper()
	out = t.TempDir()
	said, err := build(t, out, top)
	require.NoError(t, err, "every relative link and anchor in README.md and docs/ leads somewhere:\n%s", said)
	return out, read(t, out)
}

// build runs the script, which prints what is wrong.
func build(t *testing.T, out, top string) (string, error) {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "./build", out, top).CombinedOutput()
	return string(said), err
}

// read returns the files below a directory, by their names.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		files[filepath.ToSlash(rel)] = string(text)
		return err
	}))
	return files
}

// other is the top of a repository with few pages.
func other(t *testing.T, files map[string]string) string {
	t.Helper()
	top := t.TempDir()
	for _, dir := range []string{"assets", "layouts"} {
		require.NoError(t, os.CopyFS(filepath.Join(top, "tools/site", dir), os.DirFS(dir)))
	}
	config, err := os.ReadFile("hugo.toml")
	require.NoError(t, err)
	files = maps.Clone(files)
	files["tools/site/hugo.toml"] = string(config)
	files["docs/modules.md"] = "# Modules"
	files["docs/tuning.md"] = "# Tuning"
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Join(top, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(top, name), []byte(text), 0o644))
	}
	return top
}

var (
	addresses = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	loads     = regexp.MustCompile(`<(?:script|img|link|iframe|source)[^>]*(?:href|src)="(?:https?:)?//`)
	anchors   = regexp.MustCompile(`\b(?:id|name)="([^"]*)"`)
)

// TestEveryAddressLeads looks at what came out, so also at what the layout and the calculator link to.
func TestEveryAddressLeads(t *testing.T) {
	_, files := built(t, "../..")
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
	_, files := built(t, "../..")
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
	_, files := built(t, "../..")
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
	said, err := build(t, t.TempDir(), other(t, map[string]string{
		"README.md": "# Shop\n[gone](#gone)",
		"docs/a.md": "# A\n## Two words\n[gone](../gone.go) ![gone](gone.png)",
		"docs/b.md": "# B\n[none](a.md#three-words) [self](#b) [out](../../etc/passwd)",
	}))
	require.Error(t, err)
	require.Contains(t, said, "logged 5 error(s)")
	for _, mistake := range []string{
		"README.md: #gone: README.md has no heading of that name", "docs/a.md: ../gone.go: no such file", "docs/a.md: gone.png: no such file",
		"docs/b.md: a.md#three-words: docs/a.md has no heading of that name", "docs/b.md: ../../etc/passwd: no such file",
	} {
		require.Contains(t, said, "ERROR "+mistake+"\n")
	}
}

func TestLinksAreThoseOfTheSite(t *testing.T) {
	_, files := built(t, other(t, map[string]string{
		"README.md": "# Shop\n[ok](docs/a.md#two-words) [docs/a.md](docs/a.md) [](docs/a.md) " +
			"[code](main.go#L1) [away](https://example.com/x) ![here](p.svg)",
		"docs/a.md": "# A & B\n## Two words\n[`README.md`](../README.md#shop) " +
			"![in words](https://example.com/x.svg) ![here](p.svg) [folder](../docs)",
		"main.go": "package main", "docs/p.svg": "<svg/>", "p.svg": "<svg/>",
	}))
	for _, want := range []string{
		`<a href="./docs/a.html#two-words">ok</a>`, `<a href="` + repository + `/blob/main/main.go#L1">code</a>`,
		`<a href="./docs/a.html">A &amp; B</a> <a href="./docs/a.html">A &amp; B</a>`, // for a file's name, and for no text
		`<a href="https://example.com/x">away</a>`, `>A &amp; B</a></li>`,             // one that no list names is there
		`<a rel="next" href="./docs/modules.html">Modules →</a>`,
	} {
		require.Contains(t, files["index.html"], want)
	}
	for _, want := range []string{
		`<a href="../index.html#shop">Shop</a> in words <img src="../docs/p.svg" alt="here">`, repository + `/tree/main/docs"`,
	} {
		require.Contains(t, files["docs/a.html"], want)
	}
	require.Contains(t, files["docs/modules.html"], `<a rel="prev" href="../index.html">← Shop</a>`)
	require.Contains(t, files, "docs/p.svg")
	require.Contains(t, files["assets/search-index.js"], `"ok A \u0026 B A \u0026 B code away"`)
}

func TestLongPagesHaveContents(t *testing.T) {
	pages, want := map[string]string{"README.md": "# Shop"}, map[string]int{}
	for text, n := range map[string]int{
		"# A\n## B\n## C\n### D\n## E\n## F":           0,
		"# A\n## B\n## C\n### D\n## E\n## F\n## G":     6,
		"# A\n## B\n" + strings.Repeat("word ", 998):   0,
		"# A\n## B\n" + strings.Repeat("word ", 999):   1,
		"# A\n" + strings.Repeat("word ", 2000):        0,
		"# A\n#### B\n" + strings.Repeat("word ", 999): 0,
	} {
		name := fmt.Sprint("docs/", len(want))
		pages[name+".md"], want[name+".html"] = text, n
	}
	_, files := built(t, other(t, pages))
	for name, n := range want {
		require.Equal(t, n, strings.Count(files[name], `<li class="l`), "%.60s", pages[strings.TrimSuffix(name, "html")+"md"])
	}
}

func TestAnchorsAreThoseOfTheHost(t *testing.T) {
	_, files := built(t, other(t, map[string]string{"README.md": "# Twice\n## Twice\n## `a.b`: c?\n## What is promised\n" +
		"## `Do`, `Guard` & more\n## Coming from wllock (Java)\n## snake_case – Größe 2\n"}))
	var found []string
	for _, m := range regexp.MustCompile(`<h\d id="([^"]*)"`).FindAllStringSubmatch(files["index.html"], -1) {
		found = append(found, html.UnescapeString(m[1]))
	}
	require.Equal(t, []string{"twice", "twice-1", "ab-c", "what-is-promised", "do-guard--more",
		"coming-from-wllock-java", "snake_case--größe-2"}, found)
}
