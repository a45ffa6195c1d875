package debug_test

import (
	"context"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/debug"
	"github.com/wllock/wllock/distributed/memlock"
	"github.com/wllock/wllock/internal/testlocker"
	"github.com/wllock/wllock/internal/testpicture"
	"github.com/wllock/wllock/wllocktest"
)

// picturesVar names the directory that TestPictures writes to; without it, the test looks at nothing.
const picturesVar = "WLLOCK_PICTURES"

// TestPictures takes pictures of the page with chromium, as wide as a phone and as a screen, dark and light, for people to look at:
//
//	WLLOCK_PICTURES=/tmp go test -run Pictures ./debug
func TestPictures(t *testing.T) {
	dir := os.Getenv(picturesVar)
	if dir == "" {
		return // nothing is tested, so nothing is skipped
	}
	server := httptest.NewServer(debug.Handler(scene(t)...))
	defer server.Close()
	for name, flags := range map[string][]string{
		"390-light": {"--window-size=390,1700"}, "390-dark": {"--window-size=390,1700", "--blink-settings=preferredColorScheme=0"},
		"1440-light": {"--window-size=1440,1100"}, "1440-dark": {"--window-size=1440,1100", "--blink-settings=preferredColorScheme=0"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		picture := exec.CommandContext(ctx, "chromium", append(flags, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", //nolint:gosec // ours
			"--user-data-dir="+t.TempDir(), "--screenshot="+filepath.Join(dir, "debug-"+name+".png"), server.URL+"/?format=html")...)
		out, err := picture.CombinedOutput()
		require.NoError(t, err, "%s", out)
		shrink(t, filepath.Join(dir, "debug-"+name+".png"))
	}
}

func shrink(t *testing.T, file string) {
	picture, err := os.ReadFile(file)
	require.NoError(t, err)
	small, err := testpicture.Shrink(picture)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, small, 0o600))
}

// scene is a shop at noon and its mail service, whose backend is away.
func scene(t *testing.T) []*wllock.Locker {
	forEver := wllock.WithDefaults(wllock.WithLockTimeMax(0)) // browsers take their time
	b := memlock.New()
	shop, err := wllock.New("shop", b, wllock.WithInstance("shop-7c9f6d"), wllock.WithThreshold(50),
		forEver, wllock.WithName("cart", wllock.WithCallThreshold(8)))
	require.NoError(t, err)
	other, err := wllock.New("shop", b, wllock.WithInstance("shop-b41e20"), forEver)
	require.NoError(t, err)
	down := memlock.New()
	mail, err := wllock.New("mail", down, wllock.WithInstance("shop-7c9f6d"), wllock.WithLeaseTTL(time.Second), wllock.WithOutage(wllock.LocalOnly), forEver)
	require.NoError(t, err)
	t.Cleanup(func() {
		down.Partition(false)
		for _, l := range []*wllock.Locker{shop, other, mail} {
			require.NoError(t, l.Close(context.WithoutCancel(t.Context())))
		}
	})
	for range 400 {
		require.NoError(t, shop.Do(t.Context(), "product", "2000", testlocker.Nothing))
	}
	require.NoError(t, shop.Do(t.Context(), "cron", "invoices", testlocker.Nothing, wllock.WithHoldAtLeast(time.Hour)))
	require.Error(t, shop.Do(t.Context(), "cron", "cleanup", func(context.Context) error { return io.EOF }, wllock.WithHoldAtLeast(time.Hour), wllock.ReleaseOnError()))
	wllocktest.Hold(t, shop, "product", "1000")
	wllocktest.Hold(t, shop, "cart", "customer-81723@example.com/2026-11-22/checkout")
	wllocktest.Hold(t, shop, "product", "<script>alert(1)</script>")
	wllocktest.Hold(t, other, "invoice", "77")
	t.Cleanup(crowd(t, shop, "product", "1000", 42, 42))
	t.Cleanup(crowd(t, shop, "cart", "customer-81723@example.com/2026-11-22/checkout", 8, 8))
	for range 3 { // beyond the threshold
		require.ErrorIs(t, shop.Do(t.Context(), "cart", "customer-81723@example.com/2026-11-22/checkout", testlocker.Nothing), wllock.ErrQueueFull)
	}
	t.Cleanup(crowd(t, shop, "invoice", "77", 3, 2)) // its head waits in the backend
	down.Partition(true)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_ = mail.Do(ctx, "digest", "daily", testlocker.Nothing)
		return !mail.Health().Available
	}, 5*time.Second, time.Millisecond)
	wllocktest.Hold(t, mail, "digest", "daily")
	time.Sleep(time.Second)
	return []*wllock.Locker{shop, mail}
}
