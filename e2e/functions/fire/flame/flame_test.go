package flame

import (
	"image"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type colour struct{ y, cb, cr uint8 }

var (
	night  = colour{60, 130, 125}
	fire   = colour{190, 50, 190}
	white  = colour{235, 128, 128}
	brick  = colour{45, 100, 190}
	orange = colour{190, 100, 139} // its chroma differs by 39
)

// picture is a night with boxes of colours in it.
func picture(ratio image.YCbCrSubsampleRatio, size image.Rectangle, boxes map[image.Rectangle]colour) *image.YCbCr {
	img := image.NewYCbCr(size, ratio)
	paint(img, size, night)
	for box, c := range boxes {
		paint(img, box, c)
	}
	return img
}

func paint(img *image.YCbCr, box image.Rectangle, c colour) {
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			img.Y[img.YOffset(x, y)] = c.y
			img.Cb[img.COffset(x, y)], img.Cr[img.COffset(x, y)] = c.cb, c.cr
		}
	}
}

func TestRegions(t *testing.T) {
	size := image.Rect(0, 0, 160, 120)
	for _, c := range []struct {
		name  string
		boxes map[image.Rectangle]colour
		want  []Region
	}{
		{"night", nil, nil},
		{"one fire", map[image.Rectangle]colour{image.Rect(10, 20, 30, 50): fire},
			[]Region{{X: 10, Y: 20, W: 20, H: 30, Pixels: 600}}},
		{"the larger first", map[image.Rectangle]colour{image.Rect(0, 0, 10, 10): fire, image.Rect(140, 100, 160, 120): fire},
			[]Region{{X: 140, Y: 100, W: 20, H: 20, Pixels: 400}, {X: 0, Y: 0, W: 10, H: 10, Pixels: 100}}},
		{"of equals the upper first", map[image.Rectangle]colour{image.Rect(0, 50, 10, 60): fire, image.Rect(90, 10, 100, 20): fire},
			[]Region{{X: 90, Y: 10, W: 10, H: 10, Pixels: 100}, {X: 0, Y: 50, W: 10, H: 10, Pixels: 100}}},
		{"touching at a corner", map[image.Rectangle]colour{image.Rect(10, 10, 20, 20): fire, image.Rect(20, 20, 30, 30): fire},
			[]Region{{X: 10, Y: 10, W: 20, H: 20, Pixels: 200}}},
		{"not across the edges", map[image.Rectangle]colour{image.Rect(150, 10, 160, 20): fire, image.Rect(0, 11, 10, 21): fire},
			[]Region{{X: 150, Y: 10, W: 10, H: 10, Pixels: 100}, {X: 0, Y: 11, W: 10, H: 10, Pixels: 100}}},
		{"as small as counts", map[image.Rectangle]colour{image.Rect(8, 8, 16, 16): fire}, []Region{{X: 8, Y: 8, W: 8, H: 8, Pixels: 64}}},
		{"too small", map[image.Rectangle]colour{image.Rect(8, 8, 16, 14): fire}, nil},
		{"a lamp", map[image.Rectangle]colour{image.Rect(10, 20, 30, 50): white}, nil},
		{"bricks", map[image.Rectangle]colour{image.Rect(10, 20, 30, 50): brick}, nil},
		{"too little difference", map[image.Rectangle]colour{image.Rect(10, 20, 30, 50): orange}, nil},
		// All pixels are the mean, and none is above it.
		{"nothing but fire", map[image.Rectangle]colour{size: fire}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Regions(picture(image.YCbCrSubsampleRatio444, size, c.boxes))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("regions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRegionsOfAnySampling(t *testing.T) {
	box := image.Rect(12, 20, 32, 52)
	want := []Region{{X: 12, Y: 20, W: 20, H: 32, Pixels: 640}}
	for _, ratio := range []image.YCbCrSubsampleRatio{
		image.YCbCrSubsampleRatio444, image.YCbCrSubsampleRatio422, image.YCbCrSubsampleRatio420,
		image.YCbCrSubsampleRatio440, image.YCbCrSubsampleRatio411, image.YCbCrSubsampleRatio410,
	} {
		t.Run(ratio.String(), func(t *testing.T) {
			got := Regions(picture(ratio, image.Rect(0, 0, 160, 120), map[image.Rectangle]colour{box: fire}))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("regions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRegionsAreBounded(t *testing.T) {
	boxes := map[image.Rectangle]colour{}
	for y := range 10 {
		for x := range 10 {
			boxes[image.Rect(x*16, y*16, x*16+8, y*16+8)] = fire
		}
	}
	got := Regions(picture(image.YCbCrSubsampleRatio444, image.Rect(0, 0, 160, 160), boxes))
	if len(got) != maxRegions {
		t.Errorf("%d regions of 100, want %d", len(got), maxRegions)
	}
}

func TestRegionsOfNoPixels(t *testing.T) {
	if got := Regions(image.NewYCbCr(image.Rectangle{}, image.YCbCrSubsampleRatio420)); len(got) != 0 {
		t.Errorf("%v in an empty image", got)
	}
}
