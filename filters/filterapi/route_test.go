package filterapi

import (
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func routed() []RouteFunction {
	return []RouteFunction{
		{Cluster: "shop/fire", Endpoints: []RouteEndpoint{
			{Address: netip.MustParseAddrPort("10.0.0.1:8080"), Weight: 600,
				Expected: Expected{RTT: 250 * time.Microsecond, Service: 4 * time.Millisecond, Workers: 2, Others: 1.5}},
			{Address: netip.MustParseAddrPort("[fd00::1]:80"), Expected: Expected{RTT: 50 * time.Millisecond}},
		}},
		{Cluster: "outbound|80||fire.shop.svc.cluster.local", Endpoints: []RouteEndpoint{{Address: netip.MustParseAddrPort("10.0.0.1:8080"), Weight: 1}}},
	}
}

// parseRoute reads all lines.
func parseRoute(data []byte) ([]RouteFunction, error) {
	c, err := ParseRoute(data)
	if err != nil {
		return nil, err
	}
	var list []RouteFunction
	for _, line := range c.Lines {
		f, err := ParseRouteFunction(line)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

func TestRouteSurvivesItsText(t *testing.T) {
	for _, want := range [][]RouteFunction{nil, routed()} {
		data, err := MarshalRoute(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseRoute(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Errorf("functions (-want +got):\n%s", diff)
		}
	}
}

func TestRouteIsForPeopleToo(t *testing.T) {
	data, err := MarshalRoute(routed())
	if err != nil {
		t.Fatal(err)
	}
	want := "v1\nshop/fire 10.0.0.1:8080,600,250,4000,2,1500 [fd00::1]:80,0,50000,0,0,0\noutbound|80||fire.shop.svc.cluster.local 10.0.0.1:8080,1,0,0,0,0\n"
	if string(data) != want {
		t.Errorf("text\n%s, want\n%s", data, want)
	}
}

// The first line says how endpoints are named.
func TestRouteNamesBySession(t *testing.T) {
	for _, want := range []RouteConfig{{}, {Session: true}, {Session: true, Lines: []string{"a/b 10.0.0.1:80,1,0,0,0,0"}}} {
		data, err := want.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseRoute(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", data, diff)
		}
	}
}

// What was measured can be anything.
func TestRouteTakesAbsurdNumbersForTheirLimits(t *testing.T) {
	a := netip.MustParseAddrPort("10.0.0.1:80")
	for _, c := range []struct{ in, want RouteEndpoint }{
		{
			RouteEndpoint{Expected: Expected{RTT: -time.Second, Service: -1, Workers: -3, Others: math.NaN()}},
			RouteEndpoint{},
		},
		{RouteEndpoint{Expected: Expected{Others: math.Inf(-1)}}, RouteEndpoint{}},
		{RouteEndpoint{Expected: Expected{Workers: math.NaN()}}, RouteEndpoint{}},
		{RouteEndpoint{
			Weight:   math.MaxUint32,
			Expected: Expected{RTT: math.MaxInt64, Service: math.MaxInt64, Workers: math.Inf(1), Others: math.Inf(1)},
		},
			RouteEndpoint{Weight: math.MaxUint32, Expected: Expected{RTT: MaxRouteTime, Service: MaxRouteTime, Workers: MaxRouteWorkers, Others: MaxRouteOthers}}},
	} {
		c.in.Address, c.want.Address = a, a
		data, err := MarshalRoute([]RouteFunction{{Cluster: "a/b", Endpoints: []RouteEndpoint{c.in}}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseRoute(data)
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Endpoints[0] != c.want {
			t.Errorf("%+v became %+v, want %+v", c.in, got[0].Endpoints[0], c.want)
		}
	}
}

func TestMarshalRouteRefuses(t *testing.T) {
	one := routed()[1].Endpoints
	for _, c := range []struct {
		name string
		list []RouteFunction
		want string
	}{
		{"no cluster", []RouteFunction{{Endpoints: one}}, "must be 1 to 255 visible characters"},
		{"cluster of two words", []RouteFunction{{Cluster: "a b", Endpoints: one}}, "visible characters"},
		{"cluster of two lines", []RouteFunction{{Cluster: "a\nb", Endpoints: one}}, "visible characters"},
		{"no endpoint", []RouteFunction{{Cluster: "a"}}, "a: has 0 endpoints"},
		{"many endpoints", []RouteFunction{{Cluster: "a", Endpoints: make([]RouteEndpoint, MaxRouteEndpoints+1)}}, "a: has 4097 endpoints"},
		{"no address", []RouteFunction{{Cluster: "a", Endpoints: make([]RouteEndpoint, 1)}}, "is not an address"},
		{"a zone", []RouteFunction{{Cluster: "a", Endpoints: []RouteEndpoint{{Address: netip.MustParseAddrPort("[fe80::1%a,b]:1")}}}}, "is not an address"},
		{"twice", []RouteFunction{{Cluster: "a", Endpoints: one}, {Cluster: "a", Endpoints: one}}, "a: is there twice"},
		{"many functions", make([]RouteFunction, MaxFunctions+1), "at most 10000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := MarshalRoute(c.list); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
		})
	}
}

func TestParseRouteRefuses(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"empty", "", `version: is ""`},
		{"other version", "v2\na/b 10.0.0.1:80,1,2,3,4,5\n", `version: is "v2"`},
		{"other naming", "v1 sessions\n", `version: is "v1 sessions"`},
		{"no end", "v1", "no end"},
		{"cut off", "v1\na/b 10.0.0.1:80,1,2,3,4,5", "no end"},
		{"empty line", "v1\n\n", "cluster"},
		{"no endpoint", "v1\na/b\n", "has 0 endpoints"},
		{"a name", "v1\na/b c:80,1,2,3,4,5\n", "endpoint"},
		{"no port", "v1\na/b 10.0.0.1:0,1,2,3,4,5\n", "is not an address"},
		{"other spelling", "v1\na/b [fd00:0::1]:80,1,2,3,4,5\n", "is not an address that Envoy would write so"},
		{"few numbers", "v1\na/b 10.0.0.1:80,1,2,3,4\n", "does not have 5 numbers"},
		{"many numbers", "v1\na/b 10.0.0.1:80,1,2,3,4,5,6\n", "does not have 5 numbers"},
		{"negative", "v1\na/b 10.0.0.1:80,1,-2,3,4,5\n", "invalid syntax"},
		{"large", "v1\na/b 10.0.0.1:80,4294967296,2,3,4,5\n", "is over 4294967295"},
		{"two spaces", "v1\na/b  10.0.0.1:80,1,2,3,4,5\n", "endpoint"},
		{"long", "v1\n" + strings.Repeat("a", MaxConfigBytes), "at most 4194304 are allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := parseRoute([]byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
		})
	}
}

// A configuration that is accepted is written the same again.
func FuzzParseRoute(f *testing.F) {
	f.Add([]byte("v1\na/b 10.0.0.1:8080,600,250,4000,2,1500\n"))
	f.Add([]byte("v1 session\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseRoute(data)
		if err != nil {
			return
		}
		got, err := c.Marshal()
		if err == nil && string(got) != string(data) || err != nil && !strings.Contains(err.Error(), "twice") {
			t.Errorf("%q became %q, error %v", data, got, err)
		}
	})
}

// A line that is accepted can be written again and means the same.
func FuzzParseRouteFunction(f *testing.F) {
	f.Add("a/b 10.0.0.1:8080,600,250,4000,2,1500 [fd00::1]:80,0,50000,0,0,0")
	f.Add("outbound|80||a.b.svc 1.2.3.4:1,4294967295,3600000000,3600000000,1000000,1000000000")
	f.Fuzz(func(t *testing.T, line string) {
		want, err := ParseRouteFunction(line)
		if err != nil {
			return
		}
		data, err := MarshalRoute([]RouteFunction{want})
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseRoute(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]RouteFunction{want}, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Fatalf("written again it differs (-want +got):\n%s", diff)
		}
	})
}
