// Package flame finds the regions of an image that have the colour of fire.
//
// The colour rule is that of T. Celik and H. Demirel, "Fire detection in video sequences
// using a generic color model", Fire Safety Journal 44 (2009) 147-158: their rules for the
// order of the channels, for the image's means, and for the difference of the chroma
// channels. Their last rule, a region of the chroma plane fitted to their own pictures, is
// left out: a sample does not need its fewer false alarms.
package flame

import (
	"cmp"
	"image"
	"slices"
)

const (
	// chromaDifference is the paper's tau, the least by which Cr exceeds Cb, chosen there
	// from the rule's ROC curve.
	chromaDifference = 40
	// minPixels is one block of JPEG, 8 by 8: what is smaller may be an artefact of it.
	minPixels = 64
	// maxRegions bounds what a hostile image makes of the answer.
	maxRegions = 32
)

// Region is a connected region: its bounding box, from the image's upper left corner, and
// how many of its pixels are fire.
type Region struct {
	X      int `json:"x"`
	Y      int `json:"y"`
	W      int `json:"w"`
	H      int `json:"h"`
	Pixels int `json:"pixels"`
}

// Regions returns the fire-coloured regions of at least 64 pixels, the largest 32 of them
// by size.
func Regions(img *image.YCbCr) []Region {
	found := connect(fireMask(img), img.Rect.Dx())
	slices.SortFunc(found, func(a, b Region) int {
		return cmp.Or(b.Pixels-a.Pixels, a.Y-b.Y, a.X-b.X)
	})
	return found[:min(len(found), maxRegions)]
}

// fireMask says of each pixel, row by row, whether the rule holds.
func fireMask(img *image.YCbCr) []bool {
	meanY, meanCb, meanCr := means(img)
	mask := make([]bool, 0, img.Rect.Dx()*img.Rect.Dy())
	for y := img.Rect.Min.Y; y < img.Rect.Max.Y; y++ {
		for x := img.Rect.Min.X; x < img.Rect.Max.X; x++ {
			c := img.COffset(x, y)
			luma, cb, cr := int(img.Y[img.YOffset(x, y)]), int(img.Cb[c]), int(img.Cr[c])
			mask = append(mask, luma > cb && cr-cb >= chromaDifference &&
				luma > meanY && cb < meanCb && cr > meanCr)
		}
	}
	return mask
}

func means(img *image.YCbCr) (y, cb, cr int) {
	return mean(img.Y), mean(img.Cb), mean(img.Cr)
}

// mean includes the padding to whole blocks at the right and lower edge, which repeats it.
func mean(plane []uint8) int {
	if len(plane) == 0 {
		return 0
	}
	sum := 0
	for _, v := range plane {
		sum += int(v)
	}
	return sum / len(plane)
}

// connect returns the regions of set pixels that touch, corners included, and clears them.
func connect(mask []bool, width int) []Region {
	var regions []Region
	var open []int // pixels whose neighbours are still to be looked at
	for first, set := range mask {
		if !set || !mask[first] {
			continue
		}
		mask[first] = false
		open = append(open[:0], first)
		x, y := first%width, first/width
		left, right, bottom, pixels := x, x, y, 0
		for len(open) > 0 {
			at := open[len(open)-1]
			open = open[:len(open)-1]
			pixels++
			x, y := at%width, at/width
			left, right, bottom = min(left, x), max(right, x), max(bottom, y)
			for ny := max(y-1, 0); ny <= y+1 && ny*width < len(mask); ny++ {
				for nx := max(x-1, 0); nx <= min(x+1, width-1); nx++ {
					if n := ny*width + nx; mask[n] {
						mask[n] = false
						open = append(open, n)
					}
				}
			}
		}
		if pixels >= minPixels {
			regions = append(regions, Region{X: left, Y: y, W: right - left + 1, H: bottom - y + 1, Pixels: pixels})
		}
	}
	return regions
}
