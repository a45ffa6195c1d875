package stage

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/example/flashsale/internal/sale"
	"github.com/wllock/wllock/internal/testproc"
	"github.com/wllock/wllock/internal/testscope"
)

// patience is for a machine on which much else runs.
const patience = 60 * time.Second

// browser is chromium with one page, as a person has it: what it can do, it does by looking and clicking.
type browser struct {
	*testing.T
	ctx context.Context

	mu     sync.Mutex
	errors []string // guarded by mu: what a developer would see in the console
}

// openBrowser starts chromium, without its sandbox for root, who may not have one.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := testproc.Find("chromium", "/usr/bin", "/usr/local/bin", "/Applications/Chromium.app/Contents/MacOS")
	testproc.Need(t, err)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(patience), chromedp.DisableGPU)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocated, closeAllocator := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	b := &browser{T: t}
	ctx, closePage := chromedp.NewContext(allocated, chromedp.WithListener(b.hear))
	b.ctx = ctx
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the browser's end
		closePage()
		closeAllocator()
	})
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank"))) // the browser ends with the context of its first action
	return b
}

// hear collects exceptions of scripts and what the page was not allowed to do.
func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, fmt.Sprintf("%+v", e.ExceptionDetails))
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError && !strings.Contains(e.Entry.Text, "409") { // what the server refuses, the page says
			b.errors = append(b.errors, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

type action = chromedp.Action[chromedp.Void]

func (b *browser) do(actions ...action) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b, chromedp.Do(ctx, actions...))
}

// look returns what an expression of JavaScript is.
func look[T any](b *browser, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(b, err, expression)
	return value
}

// until waits for an expression of JavaScript to be true.
func (b *browser) until(expression string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void](expression,
		chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	if err != nil {
		b.Fatalf("%v: %s\nthe page says:\n%s", err, expression, look[string](b, "document.body.innerText"))
	}
}

func (b *browser) click(selector string) {
	b.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// logged waits for a line of the log, while the sale goes on or after it.
func (b *browser) logged(text string) {
	b.Helper()
	b.until(fmt.Sprintf("document.getElementById('log').textContent.includes(%q)", text))
}

// figure is what a card shows.
func (b *browser) figure(round, name string) string {
	b.Helper()
	return look[string](b, fmt.Sprintf(`document.querySelector('[aria-label=%q] [data-is=%q]').textContent`, round, name))
}

// openPage serves the program with those flags and opens its page, with all processes up.
func openPage(t *testing.T, flags ...string) *browser {
	t.Helper()
	_, err := testproc.Find("redis-server")
	testproc.Need(t, err)
	b := openBrowser(t)
	b.do(chromedp.Navigate(servePage(t, flags...)))
	b.until("document.body.dataset.live && document.querySelectorAll('#processes .state:not(.down)').length === 4")
	return b
}

// servePage runs the program until the test ends, and returns the address of its page.
func servePage(t *testing.T, flags ...string) string {
	t.Helper()
	out, in := io.Pipe()
	status := make(chan int, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		status <- program.Run(ctx, append([]string{"-serve", ":0"}, flags...), io.Discard, in)
		in.Close()
	}()
	t.Cleanup(func() {
		stop()
		assert.Equal(t, sale.StatusOK, <-status)
	})
	address := regexp.MustCompile(`http://[^/]+/`)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if page := address.FindString(lines.Text()); page != "" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return page
		}
	}
	t.Fatal("the server has said no address")
	return ""
}

// fill sets the fields of a sale.
func (b *browser) fill(stock, buyers, seconds int) {
	b.Helper()
	for name, n := range map[string]int{"stock": stock, "buyers": buyers, "seconds": seconds} {
		b.do(chromedp.SetValue(chromedp.CSS("[name="+name+"]"), fmt.Sprint(n)))
	}
}

const soldWithWllock = `Number(document.querySelector('[aria-label="wllock"] .sold').firstChild.textContent.replaceAll(',', ''))`

// A person starts a sale, kills the lock service in the middle and brings it back, then a shop, and moves the slider.
func TestTheLockServiceIsKilledInTheMiddle(t *testing.T) {
	testscope.Long(t, "kills processes, and waits for what they held")
	t.Parallel()
	b := openPage(t, "-wait", "1s")
	b.fill(30_000, 30_000, 200) // the sale is to last until the test ends it
	b.click("#go")
	b.until(soldWithWllock + " >= 20")
	b.do(chromedp.Evaluate[chromedp.Void](`ask("sale", {stock: 1, buyers: 3, seconds: 1})`))
	b.until(`document.getElementById("status").textContent === "a sale is going on: one at a time"`)

	b.click(`[data-ask="service/kill"]`)
	b.logged("You killed the lock service (SIGKILL).")
	b.logged("wllock knows it in shop ")
	time.Sleep(2 * stallTime)
	sold := look[int](b, soldWithWllock)
	b.click(`[data-ask="service/restart"]`)
	b.logged("The lock service is back after ")
	b.logged("wllock sells again: it had sold nothing for ")
	b.until(fmt.Sprintf("%s > %d", soldWithWllock, sold))

	for began := time.Now(); ; { // until somebody was in the shop
		b.click(`[data-ask="shops/2/kill"]`)
		b.click(`[data-ask="shops/2/restart"]`)
		if b.figure("wllock", "no answer") != "0" || time.Since(began) > patience {
			break
		}
	}
	b.logged("You killed shop 2 (SIGKILL)")
	b.logged("Shop 2 is back")
	b.do(chromedp.Evaluate[chromedp.Void](`
		document.getElementById("threshold").value = 0
		for (const what of ["input", "change"]) document.getElementById("threshold").dispatchEvent(new Event(what))`))
	b.logged("The threshold is 0 now")

	b.click("#end")
	b.until("document.getElementById('status').textContent.includes('has ended')") // also after a refusal
	for _, round := range []string{"one tier", "wllock", "batches"} {
		assert.Equal(t, "nothing oversold", b.figure(round, "verdict"), round)
		b.until(fmt.Sprintf("/%s sold [0-9]+ of 30000 pieces, each to one buyer/.test(document.getElementById('log').textContent)", round))
	}
	b.logged(" of them twice: the stock says that ") // without a lock
	assert.NotEqual(t, "0", b.figure("wllock", "turned away"))
	assert.Regexp(t, "^.99 of 100 within [0-9.]+ m?s.$", b.figure("wllock", "told"))
	assert.NotEqual(t, "0", b.figure("wllock", "no answer"), "of the shop that was killed")
	assert.Contains(t, look[string](b, "document.getElementById('verdict').textContent"), "no piece was sold twice under a lock")
	for _, width := range []int64{390, 1440} {
		b.do(chromedp.EmulateViewport(width, 900))
		assert.True(t, look[bool](b, "document.documentElement.scrollWidth <= innerWidth"), "at %d pixels the page is wider than the window", width)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Empty(t, b.errors, "of the browser's console")
}
