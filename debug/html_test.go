package debug_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/debug"
	"github.com/wllock/wllock/wllocktest"
)

// void are the elements without an end.
var void = []string{"meta", "!doctype"}

var (
	tag     = regexp.MustCompile(`<(/?)([a-z!][a-z0-9]*)((?:\s+[a-z-]+(?:="[^"<>]*")?)*)\s*>`)
	entity  = regexp.MustCompile(`&(?:#[0-9]+|[a-z]+);`)
	allowed = regexp.MustCompile(`^(?:!doctype|html|head|body|meta|title|style|header|main|nav|section|details|summary|h[123]|p|a|dl|dt|dd|div|b|small|code|span|meter|table|thead|tbody|tr|th|td)$`)
)

// wellFormed fails unless every element is one that the page has, and is closed in its turn. What is no tag has no bracket left.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	var open []string
	for _, m := range tag.FindAllStringSubmatch(page, -1) {
		require.Regexp(t, allowed, m[2], m[0])
		require.NotRegexp(t, `(?i)\son[a-z]+=|style=|javascript:`, m[3], "the policy allows none of these")
		switch {
		case m[1] == "/":
			require.NotEmpty(t, open, m[0])
			require.Equal(t, open[len(open)-1], m[2], "closed in its turn")
			open = open[:len(open)-1]
		case !slices.Contains(void, m[2]):
			open = append(open, m[2])
		}
	}
	require.Empty(t, open)
	text := entity.ReplaceAllString(tag.ReplaceAllString(regexp.MustCompile(`(?s)<style>.*?</style>`).ReplaceAllString(page, ""), ""), "")
	require.NotRegexp(t, `[<>&]`, text)
}

var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</style><script>x</script>`, `'};alert(1)//`, `{{.PID}}`, `&lt;b&gt;`,
	"\u202egnp.exe", "javascript:alert(1)", strings.Repeat("<b>", 60), "ключ 鍵 🔒",
}

func TestHTMLEscapesKeys(t *testing.T) {
	l := wllocktest.New(t)
	for _, key := range hostile {
		wllocktest.Hold(t, l, "product", key)
	}
	page := getHTML(t, "/", l)
	require.Equal(t, len(hostile), strings.Count(page, `<td data-is="state">`))
	require.Contains(t, page, "&lt;script&gt;alert(1)&lt;/script&gt;")
	require.Contains(t, page, "ключ 鍵")
	require.NotContains(t, page, "\u202e", "text must not change its direction")
}

func TestSeveralLockers(t *testing.T) {
	a, b := wllocktest.New(t), wllocktest.New(t)
	wllocktest.Hold(t, b, "product", "1")
	page := getHTML(t, "/", a, b)
	require.Equal(t, 2, strings.Count(page, "<section>"))
	require.Contains(t, page, a.Instance())
	require.Contains(t, page, b.Instance())
	require.Equal(t, 1, strings.Count(page, `id="legend"`))
	require.Panics(t, func() { debug.Handler() })
	require.PanicsWithValue(t, "debug: Handler(nil): want a Locker", func() { debug.Handler(a, nil) })
}

func TestRefresh(t *testing.T) {
	l := wllocktest.New(t)
	for target, want := range map[string]string{
		"/": "", "/?refresh=2": `content="2"`, "/?refresh=0": "", "/?refresh=-1": "", "/?refresh=3601": "", `/?refresh=2;url=//evil`: "",
	} {
		page := getHTML(t, target, l)
		require.Equal(t, want != "", strings.Contains(page, `<meta http-equiv="refresh" `+want), target)
	}
}

// The policy allows the style that the page has, and nothing of anybody's else.
func TestPolicyAllowsTheStyleAlone(t *testing.T) {
	answer := get(t, "/", "text/html", wllocktest.New(t))
	page, header := answer.Body.String(), answer.Header()
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindAllStringSubmatch(page, -1)
	require.Len(t, style, 1)
	hash := sha256.Sum256([]byte(style[0][1]))
	require.Equal(t, "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", header.Get("Content-Security-Policy"))
	require.NotRegexp(t, `url\(|@import|<link|<script|src=`, page)
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Vary": "Accept",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		require.Equal(t, want, header.Get(name))
	}
}

// TestEveryWordIsExplained: the legend has each state, and what else is no plain word.
func TestEveryWordIsExplained(t *testing.T) {
	page := getHTML(t, "/", wllocktest.New(t))
	for _, word := range []string{"held", "degraded", "staying", "queued", "lingering", "passing", "fence", "lease", "turns", "shed"} {
		require.Contains(t, page, "<dt>"+word+"</dt><dd>")
	}
}

// fill sets every field of a struct to a value of its own.
func fill(t *testing.T, v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Interface().(type) {
		case string:
			f.SetString("text " + v.Type().Field(i).Name)
		case bool:
			f.SetBool(true)
		case int, int64, time.Duration:
			f.SetInt(int64(i + 1))
		case uint64:
			f.SetUint(1<<64 - 1 - uint64(i))
		case time.Time:
			f.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)))
		default:
			t.Fatalf("%v: a kind that this test does not know", f.Type())
		}
	}
}

// snake is how a field is called in JSON: HeldFor is held_for, with _ns for a duration.
func snake(f reflect.StructField) string {
	var b strings.Builder
	for i, r := range f.Name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	if f.Type == reflect.TypeFor[time.Duration]() {
		b.WriteString("_ns")
	}
	return b.String()
}

// The JSON has every field of LockInfo and NameStats, by its name, and a Go program gets them back as they were.
func TestJSONAgreesWithGo(t *testing.T) {
	for _, value := range []any{new(wllock.LockInfo), new(wllock.NameStats)} {
		v := reflect.ValueOf(value).Elem()
		fill(t, v)
		text, err := json.Marshal(value)
		require.NoError(t, err)
		back := reflect.New(v.Type())
		require.NoError(t, json.Unmarshal(text, back.Interface()))
		require.Equal(t, value, back.Interface())
		var members map[string]any
		require.NoError(t, json.Unmarshal(text, &members))
		require.Len(t, members, v.NumField())
		for f := range v.Fields() {
			assert.Contains(t, members, snake(f))
		}
		if fence, ok := members["fence"]; ok {
			require.IsType(t, "", fence, "a number loses what is beyond 2^53")
		}
	}
}

// The page's JSON is made of these types alone: what is shown of a lock is what Locks returns.
func TestJSONIsLocks(t *testing.T) {
	l := wllocktest.New(t)
	wllocktest.Hold(t, l, "product", "1")
	shown, is := getJSON(t, l).Locks[0], l.Locks(1)[0]
	is.HeldFor, is.Until, shown.Until = shown.HeldFor, is.Until.Round(0), shown.Until.Local()
	is.Until = shown.Until // renewed meanwhile
	require.Equal(t, is, shown)
}

func TestHeadHasNoBody(t *testing.T) {
	server := httptest.NewServer(debug.Handler(wllocktest.New(t)))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, server.URL, http.NoBody)
	require.NoError(t, err)
	resp, err := server.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Empty(t, body)
}
