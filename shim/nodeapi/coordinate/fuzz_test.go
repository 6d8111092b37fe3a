package coordinate_test

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
)

// A point that is taken is as it was said, whatever bytes a node sends.
func FuzzParse(f *testing.F) {
	for _, c := range []*nodeapi.Coordinate{{Vector: make([]float64, coordinate.Dimensions), Error: 1},
		{Vector: []float64{math.NaN()}}, {Height: math.Inf(1)}} {
		b, err := proto.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m nodeapi.Coordinate
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		p, err := coordinate.Parse(&m)
		if err != nil {
			return
		}
		for _, v := range append(p.Message().GetVector(), p.Message().GetHeight(), p.Message().GetError()) {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("%v is taken", &m)
			}
		}
		if d := p.RTT(p); d < 0 || d > time.Hour {
			t.Errorf("%v is %v from itself", &m, d)
		}
	})
}
