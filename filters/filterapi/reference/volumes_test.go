package reference_test

import (
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// What is read can be a directory's name and a prefix of keys, and is written as it was read.
func FuzzParseVolumes(f *testing.F) {
	f.Add("models=s3://models/llama/,words=s3://data/")
	f.Add("models=s3://models/../")
	f.Add("models=redis://models/a/")
	f.Fuzz(func(t *testing.T, s string) {
		volumes, err := reference.ParseVolumes(s)
		if err != nil {
			return
		}
		var again []string
		for _, v := range volumes {
			key := v.Prefix.Key
			if len(volumes) > reference.MaxVolumes || !reference.IsVolumeName(v.Name) ||
				key != "" && !strings.HasSuffix(key, "/") || strings.Contains("/"+key, "//") || strings.Contains("/"+key, "/../") {
				t.Errorf("%q is read as %+v", s, volumes)
			}
			again = append(again, v.String())
		}
		if written := strings.Join(again, ","); written != s {
			t.Errorf("%q is written as %q", s, written)
		}
	})
}
