package probe_test

import (
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
	"github.com/headstart-mesh/headstart/shim/probe"
)

// Whatever a peer answers, it is a coordinate of the network or an error.
func FuzzAnswer(f *testing.F) {
	honest, err := probe.Answer(coordinate.New("a").Point())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(honest)
	f.Add(honest[:len(honest)-1])
	f.Add([]byte{0xff, 0xff, 1})
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := probe.ReadAnswer(b)
		if (err == nil) != p.Known() {
			t.Fatalf("%v, %v", p, err)
		}
		if err == nil {
			if _, err := coordinate.Parse(p.Message()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestKernelsLastRoundTrip(t *testing.T) {
	for name, c := range map[string]struct {
		before, after [3]uint64
		want          time.Duration
		ok            bool
	}{
		"as before":              {[3]uint64{1000, 1, 0}, [3]uint64{1000, 2, 0}, ms, true},
		"longer":                 {[3]uint64{1000, 1, 0}, [3]uint64{1100, 2, 0}, 1800 * time.Microsecond, true},
		"shorter":                {[3]uint64{1000, 1, 0}, [3]uint64{900, 2, 0}, 200 * time.Microsecond, true},
		"the first":              {[3]uint64{0, 0, 0}, [3]uint64{900, 2, 0}, 0, false},
		"nothing acknowledged":   {[3]uint64{1000, 1, 0}, [3]uint64{1000, 1, 0}, 0, false},
		"something was repeated": {[3]uint64{1000, 1, 0}, [3]uint64{1000, 2, 1}, 0, false},
		"more than one sample":   {[3]uint64{8000, 1, 0}, [3]uint64{6000, 2, 0}, 0, false},
	} {
		got, ok := probe.Between(c.before, c.after)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %s, %t", name, got, ok)
		}
	}
}
