package stage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testpicture"
)

// picturesVar names the directory that TestPictures writes to; without it, the test looks at nothing.
const picturesVar = "WLLOCK_PICTURES"

// TestPictures takes pictures of the page, as wide as a phone and as a screen, dark and light, for people to look at:
//
//	make flashsale-pictures
func TestPictures(t *testing.T) {
	dir := os.Getenv(picturesVar)
	if dir == "" {
		return // nothing is tested, so nothing is skipped
	}
	b := openPage(t)
	b.click("#go")
	b.do(chromedp.Sleep(4 * time.Second))
	b.click(`[data-ask="service/kill"]`)
	b.do(chromedp.Sleep(2 * time.Second))
	b.click(`[data-ask="service/restart"]`)
	b.until("document.getElementById('status').textContent.includes('has ended')")
	for _, width := range []int64{1440, 390} {
		for _, scheme := range []string{"light", "dark"} {
			b.do(chromedp.EmulateViewport(width, 900), colours(scheme), chromedp.Sleep(100*time.Millisecond))
			height := look[int64](b, "document.documentElement.scrollHeight")
			b.do(chromedp.EmulateViewport(width, height), chromedp.Sleep(300*time.Millisecond),
				chromedp.Evaluate[chromedp.Void](`document.getElementById("log").scrollTop = 1e6`)) // as it is while lines come
			picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			require.NoError(t, err)
			file := filepath.Join(dir, fmt.Sprintf("flashsale-%d-%s.png", width, scheme))
			small, err := testpicture.Shrink(picture)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, small, 0o600))
		}
	}
}

// colours is what a person has chosen for all pages.
func colours(scheme string) action {
	return func(ctx context.Context, target *chromedp.Target) (none chromedp.Void, err error) {
		_, err = cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return none, err
	}
}
