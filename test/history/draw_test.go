package history

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/testpicture"
)

// elements are those of an SVG that is well formed, and its texts.
func elements(t *testing.T, svg []byte) (classes map[string]int, texts string) {
	classes = map[string]int{}
	for in := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return classes, texts
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					classes[a.Value]++
				}
			}
		case xml.CharData:
			texts += string(e) + "\n"
		}
	}
}

func TestViolationIsDrawn(t *testing.T) {
	strange := `<p1> & "co"`
	h := History{Calls: []*Call{
		call(strange, 1e6, 10e6, 60e6, 11, wrote(0, Wrote), func(c *Call) { c.Certain = 12e6 }), call("b", 1e6, 30e6, 40e6, 12, wrote(0, Wrote)),
		call("c", 31e6, 41e6, 55e6, 13, shared), call("gone", 500e6, 501e6, 502e6, 14, shared),
	}, Faults: []Event{fault(Stop, strange, 13e6, 50e6), fault(Kill, "c", 55e6, 55e6)}}
	found := h.Check(Rules{Store: Blind, Late: time.Second})
	require.Len(t, found, 1)
	var svg bytes.Buffer
	require.NoError(t, h.Draw(&svg, found[0]))
	classes, texts := elements(t, svg.Bytes())
	require.Equal(t, 2, classes["bad"])
	require.Equal(t, 1, classes["other"], "what is near in time is there, too")
	require.Equal(t, 1, classes["fault"])
	require.Equal(t, 1, classes["kill"])
	for _, text := range []string{strange, "linearizable", "c/1", "\n1\n", "\n3\n", "wrote 1", "read 0", "stop"} {
		require.Contains(t, texts, text)
	}
	require.NotContains(t, texts, "gone")
}

// picturesVar names the directory that TestPictures writes to. Without it, the test looks at nothing.
const picturesVar = "WLLOCK_PICTURES"

// TestPictures takes pictures of violations, for people to look at:
//
//	WLLOCK_PICTURES=/tmp go -C test test -run Pictures ./history
func TestPictures(t *testing.T) {
	dir := os.Getenv(picturesVar)
	if dir == "" {
		return // nothing is tested, so nothing is skipped
	}
	for name, plant := range flaws {
		rnd := rand.New(rand.NewPCG(4, 0))
		h := simulate(rnd, Compares, true, 1, 40)
		rule := plant(rnd, h)
		for _, c := range h.Calls { // to milliseconds
			for _, at := range []*int64{&c.Asked, &c.Queued, &c.Held, &c.Certain, &c.Left, &c.Back, &c.Deadline} {
				*at *= int64(time.Millisecond)
			}
			for _, a := range c.Accesses {
				a.From *= int64(time.Millisecond)
				if a.Until < forever {
					a.Until *= int64(time.Millisecond)
				}
			}
		}
		for i := range h.Faults {
			h.Faults[i].Since, h.Faults[i].At = h.Faults[i].Since*int64(time.Millisecond), h.Faults[i].At*int64(time.Millisecond)
		}
		for _, v := range h.Check(Rules{Store: Compares, Late: late * time.Millisecond}) {
			if v.Rule == rule {
				takePicture(t, h, v, filepath.Join(dir, "planted-"+strings.ReplaceAll(name, " ", "-")))
				break
			}
		}
	}
}

// takePicture writes a violation as NAME.svg, and with chromium as NAME.png.
func takePicture(t *testing.T, h *History, v Violation, name string) {
	file, err := os.Create(name + ".svg")
	require.NoError(t, err)
	require.NoError(t, errors.Join(h.Draw(file, v), file.Close()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,500",
		"--user-data-dir="+t.TempDir(), "--screenshot="+name+".png", "file://"+name+".svg").CombinedOutput()
	require.NoError(t, err, "%s", out)
	full, err := os.ReadFile(name + ".png")
	require.NoError(t, err)
	small, err := testpicture.Shrink(full)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name+".png", small, 0o600))
}
