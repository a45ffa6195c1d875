// Package testpicture makes pictures of pages small enough for a repository.
package testpicture

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"slices"
)

// Shrink leaves a PNG few colours: the most frequent ones, each unlike those before it.
func Shrink(picture []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	seen := map[color.Color]int{}
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			seen[full.At(x, y)]++
		}
	}
	var few color.Palette
	for _, c := range slices.SortedFunc(maps.Keys(seen), func(a, b color.Color) int { return seen[b] - seen[a] }) {
		if len(few) < 255 && (len(few) == 0 || unlike(c, few.Convert(c))) {
			few = append(few, c)
		}
	}
	small := image.NewPaletted(full.Bounds(), few)
	draw.Draw(small, small.Bounds(), full, image.Point{}, draw.Src)
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, small)
	return b.Bytes(), err
}

func unlike(a, b color.Color) bool {
	ar, ag, ab, _ := a.RGBA()
	br, bg, bb, _ := b.RGBA()
	const eye = 10 << 8
	far := func(x, y uint32) bool { return max(x, y)-min(x, y) > eye }
	return far(ar, br) || far(ag, bg) || far(ab, bb)
}
