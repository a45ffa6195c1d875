package testpicture

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestShrink(t *testing.T) {
	const side = 256
	full := image.NewNRGBA(image.Rect(0, 0, side, side))
	hue := rand.New(rand.NewPCG(1, 2)) // like the edges of letters: many shades that nobody tells apart
	for i := range side * side {
		full.Set(i%side, i/side, color.NRGBA{R: uint8(hue.IntN(40)), G: 200, B: uint8(hue.IntN(40)), A: 255})
	}
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, full))
	small, err := Shrink(b.Bytes())
	require.NoError(t, err)
	assert.Less(t, len(small), b.Len()/2)
	got, err := png.Decode(bytes.NewReader(small))
	require.NoError(t, err)
	assert.Equal(t, full.Bounds(), got.Bounds())
	for i := range side * side {
		if unlike(full.At(i%side, i/side), got.At(i%side, i/side)) {
			t.Fatalf("pixel %d is another colour", i)
		}
	}
	_, err = Shrink([]byte("no picture"))
	require.Error(t, err)
}
