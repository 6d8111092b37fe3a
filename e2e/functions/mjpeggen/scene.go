package mjpeggen

import (
	"image"
	"math/rand/v2"
)

// The size of the picture, as of a small surveillance camera.
const (
	width  = 640
	height = 360
)

// fireEnds is the first scene without fire: it burns in the first half, and so also in the
// first frame, the only one that is sampled from a short video.
const fireEnds = scenes / 2

// noise is how far a pixel's brightness strays: a sensor at dusk. It makes most of a
// frame's size.
const noise = 16

// colour is in full-range YCbCr, as JFIF has it.
type colour struct{ y, cb, cr uint8 }

var (
	grey = colour{105, 132, 126} // vehicles, and what they drive on is darker
	lamp = colour{235, 126, 130} // as bright as fire, but white
	// brick is as red as fire, but darker than its surroundings.
	brick = colour{45, 104, 190}
	flame = colour{190, 48, 186}
)

// draw returns scene n and the bounding box of its flame, empty for none.
func draw(n int, seed uint64) (*image.YCbCr, image.Rectangle) {
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	img := image.NewYCbCr(image.Rect(0, 0, width, height), image.YCbCrSubsampleRatio420)
	background(img, random)
	for lane := range 4 {
		speed := 4 + 3*lane
		x := (lane*170 + n*speed) % width
		fill(img, image.Rect(x, 220+lane*30, x+60, 240+lane*30), grey)
	}
	fill(img, image.Rect(40, 40, 56, 56), lamp)
	fill(img, image.Rect(500, 90, 580, 190), brick)
	if n >= fireEnds {
		return img, image.Rectangle{}
	}
	return img, burn(img, n, random)
}

// background is a bluish sky over greenish ground.
func background(img *image.YCbCr, random *rand.Rand) {
	for y := range height {
		brightness := 130 - y/6
		for x := range width {
			img.Y[img.YOffset(x, y)] = uint8(brightness + random.IntN(2*noise+1) - noise)
		}
	}
	for y := 0; y < height; y += 2 {
		cb := uint8(142 - y/24)
		for x := 0; x < width; x += 2 {
			c := img.COffset(x, y)
			img.Cb[c], img.Cr[c] = cb, 120
		}
	}
}

// fill paints a rectangle's colour and keeps some of the noise beneath.
func fill(img *image.YCbCr, box image.Rectangle, c colour) {
	box = box.Intersect(img.Rect)
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			set(img, x, y, c)
		}
	}
}

func set(img *image.YCbCr, x, y int, c colour) {
	grain := img.Y[img.YOffset(x, y)] % 8
	img.Y[img.YOffset(x, y)] = c.y + grain
	offset := img.COffset(x, y)
	img.Cb[offset], img.Cr[offset] = c.cb, c.cr
}

// burn paints a flame of a given age, in scenes: tongues that flicker over a growing bed.
func burn(img *image.YCbCr, age int, random *rand.Rand) image.Rectangle {
	const bedX, bedY = 300, 200
	var box image.Rectangle
	for tongue := range 3 {
		// Even numbers, so that no chroma sample is half on fire.
		rx := 2 * (8 + age/3 + random.IntN(4))
		ry := 2 * (14 + age/2 + random.IntN(8))
		cx, cy := bedX+age*2+(tongue-1)*20, bedY-2*random.IntN(6)
		for y := cy - ry; y < cy+ry; y++ {
			for x := cx - rx; x < cx+rx; x++ {
				if inEllipse(x&^1-cx, y&^1-cy, rx, ry) {
					set(img, x, y, flame)
					box = box.Union(image.Rect(x, y, x+1, y+1))
				}
			}
		}
	}
	return box
}

func inEllipse(dx, dy, rx, ry int) bool {
	return dx*dx*ry*ry+dy*dy*rx*rx < rx*rx*ry*ry
}
