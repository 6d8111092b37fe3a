package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"

	"github.com/headstart-mesh/headstart/e2e/functions/fire/flame"
	"github.com/headstart-mesh/headstart/e2e/functions/mjpeg"
)

// Answer is what the function finds in a video.
type Answer struct {
	Frames   int `json:"frames"`
	Analysed int `json:"analysed"`
	// Unreadable frames were to be analysed but could not be decoded.
	Unreadable int    `json:"unreadable,omitempty"`
	Bytes      int    `json:"bytes"`
	SHA256     string `json:"sha256"`
	// Fire has the analysed frames with fire in them, by number from 0.
	Fire []FrameOnFire `json:"fire"`
}

// FrameOnFire is a frame with fire-coloured regions.
type FrameOnFire struct {
	Frame   int            `json:"frame"`
	Regions []flame.Region `json:"regions"`
}

// maxPixels is the largest frame that is decoded, somewhat over 4K: a header of a few bytes
// can claim an image of 65535 by 65535, and decoding would reserve memory for it.
const maxPixels = 16 << 20

// errNoVideo is for an input that has no frame to look at.
var errNoVideo = errors.New("the input has no JPEG frame that can be read")

// analyse looks for fire in every n-th frame of a video.
func analyse(video []byte, every int) (Answer, error) {
	digest := sha256.Sum256(video)
	answer := Answer{Bytes: len(video), SHA256: hex.EncodeToString(digest[:]), Fire: []FrameOnFire{}}
	for frame := range mjpeg.Frames(video) {
		number := answer.Frames
		answer.Frames++
		if number%every != 0 {
			continue
		}
		img, err := decode(frame)
		if err != nil {
			answer.Unreadable++
			continue
		}
		answer.Analysed++
		if regions := flame.Regions(img); len(regions) > 0 {
			answer.Fire = append(answer.Fire, FrameOnFire{Frame: number, Regions: regions})
		}
	}
	if answer.Analysed == 0 {
		return Answer{}, errNoVideo
	}
	return answer, nil
}

func decode(frame []byte) (*image.YCbCr, error) {
	header, err := jpeg.DecodeConfig(bytes.NewReader(frame))
	if err != nil {
		return nil, err
	}
	if header.Width*header.Height > maxPixels {
		return nil, fmt.Errorf("a frame of %d by %d pixels is too large", header.Width, header.Height)
	}
	img, err := jpeg.Decode(bytes.NewReader(frame))
	if err != nil {
		return nil, err
	}
	if img, ok := img.(*image.YCbCr); ok {
		return img, nil
	}
	return convert(img), nil
}

// convert is for the rarer kinds of JPEG: grey, RGB and CMYK.
func convert(img image.Image) *image.YCbCr {
	bounds := img.Bounds()
	converted := image.NewYCbCr(bounds, image.YCbCrSubsampleRatio444)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := color.YCbCrModel.Convert(img.At(x, y)).(color.YCbCr)
			i := converted.YOffset(x, y)
			converted.Y[i], converted.Cb[i], converted.Cr[i] = c.Y, c.Cb, c.Cr
		}
	}
	return converted
}
