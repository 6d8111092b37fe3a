package coldrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"image"
)

// analysedEvery is which frames the function looks at: one a second of a camera with 25.
const analysedEvery = 25

// detection is what the function answers, as far as it can be checked.
type detection struct {
	Frames int    `json:"frames"`
	SHA256 string `json:"sha256"`
	Fire   []struct {
		Frame   int `json:"frame"`
		Regions []struct {
			X, Y, W, H int
		} `json:"regions"`
	} `json:"fire"`
}

// check says what is wrong with an answer: the function must have seen the video that
// was stored, and of a generated one have found fire in the frames, and at the places,
// where there is some.
func (c Case) check(answer []byte) error {
	var d detection
	if err := json.Unmarshal(answer, &d); err != nil {
		return fmt.Errorf("it is no answer: %w", err)
	}
	if d.SHA256 != c.SHA256 {
		return fmt.Errorf("it is about another video, with digest %s", d.SHA256)
	}
	if c.Truth == nil {
		return nil
	}
	if d.Frames != c.Truth.Frames {
		return fmt.Errorf("it counts %d frames of %d", d.Frames, c.Truth.Frames)
	}
	found := map[int]bool{}
	for _, f := range d.Fire {
		flame, burns := c.Truth.Flame(f.Frame)
		if !burns {
			return fmt.Errorf("frame %d does not burn", f.Frame)
		}
		for _, r := range f.Regions {
			if image.Rect(r.X, r.Y, r.X+r.W, r.Y+r.H).Overlaps(flame) {
				found[f.Frame] = true
			}
		}
	}
	for n := 0; n < c.Truth.Frames; n += analysedEvery {
		if _, burns := c.Truth.Flame(n); burns && !found[n] {
			return fmt.Errorf("it misses the fire in frame %d", n)
		}
	}
	if len(found) == 0 {
		return errors.New("it finds no fire at all")
	}
	return nil
}
