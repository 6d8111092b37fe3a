package filterapi

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Limits of the route filter's expectations. MaxConfigBytes and MaxFunctions are theirs, too.
const (
	// MaxRouteEndpoints is the number of endpoints of one function.
	MaxRouteEndpoints = 4096
	// MaxRouteTotal is the number of endpoints of all functions together. Each worker of a gateway reads them and
	// keeps them, and no request passes meanwhile.
	MaxRouteTotal = 1 << 14
	// MaxRouteTime bounds a round trip and a time of service.
	MaxRouteTime = time.Hour
	// MaxRouteWorkers bounds how many requests an endpoint works on.
	MaxRouteWorkers = 1_000_000
	// MaxRouteOthers bounds how many requests of other gateways it has.
	MaxRouteOthers = 1_000_000
)

// RouteFunction is what the route filter reckons with for one function.
//
// The filter gets it as text, because it is sent again every few seconds where loads
// change, to each of a gateway's workers, while requests wait: the first line is Version, each
// other one a function's, and a filter reads only those that are not what they were. A line
// has the cluster, and for each endpoint six values, with spaces between endpoints and
// commas between values:
//
//	v1
//	default/fire 10.0.0.1:8080,600,250,4000,2,1500 10.0.0.2:8080,400,50000,4000,8,0
//
// They are the address, the weight, round trip and time of service in microseconds, the
// workers and the thousandths of requests of others. Where the first line is "v1 session", the
// filter names endpoints in HeaderSession, else in HeaderEndpoint.
type RouteFunction struct {
	// Cluster is what Envoy calls the function's cluster.
	Cluster string
	// Endpoints are the function's, those without weight too.
	Endpoints []RouteEndpoint
}

// RouteEndpoint is one endpoint as a gateway is to see it.
type RouteEndpoint struct {
	Address netip.AddrPort
	// Weight is its share of the requests.
	Weight uint32
	Expected
}

// Expected is what a request from a gateway is expected to meet at an endpoint.
type Expected struct {
	// RTT is the round trip between the two, Service how long a request holds one of the
	// endpoint's workers; 0: not known.
	RTT, Service time.Duration
	// Workers is how many requests the endpoint works on at a time; 0: not known.
	Workers float64
	// Others is how many requests it has on average that are not this gateway's.
	Others float64
}

// RouteConfig is all that the route filter reckons with. It is data, from the node's daemon.
type RouteConfig struct {
	// Session says that the gateway's clusters may eject endpoints: it is HeaderSession then
	// that names the endpoint, which Envoy passes over while it is not well.
	Session bool
	// Lines are the functions', each of another cluster.
	Lines []string
}

// sessionWord follows the version, if HeaderSession names endpoints.
const sessionWord = " session"

// MarshalRoute returns the expectations of functions, always the same for the same ones. It
// refuses what a filter would refuse.
func MarshalRoute(functions []RouteFunction) ([]byte, error) {
	if err := checkFunctions(len(functions)); err != nil {
		return nil, err
	}
	c := RouteConfig{Lines: make([]string, 0, len(functions))}
	for _, f := range functions {
		line, err := f.Line()
		if err != nil {
			return nil, err
		}
		c.Lines = append(c.Lines, line)
	}
	return c.Marshal()
}

// Marshal writes it, always the same for the same lines in the same order. It looks at no
// endpoint: ParseRouteFunction does.
func (c RouteConfig) Marshal() ([]byte, error) {
	if err := checkFunctions(len(c.Lines)); err != nil {
		return nil, err
	}
	b := []byte(Version)
	if c.Session {
		b = append(b, sessionWord...)
	}
	b = append(b, '\n')
	first := len(b)
	seen := make(map[string]bool, len(c.Lines))
	for _, line := range c.Lines {
		cluster := RouteCluster(line)
		if seen[cluster] {
			return nil, fmt.Errorf("%.80s: is there twice", cluster)
		}
		seen[cluster] = true
		b = append(append(b, line...), '\n')
	}
	if len(b) > MaxConfigBytes {
		return nil, fmt.Errorf("is %d bytes long, at most %d are allowed", len(b), MaxConfigBytes)
	}
	return b, checkTotal(b[first:])
}

// Line writes a function. It refuses what ParseRouteFunction would refuse; numbers beyond
// their limits are taken for these, and those that are none for 0.
func (f RouteFunction) Line() (string, error) {
	if err := checkRoute(f.Cluster, len(f.Endpoints)); err != nil {
		return "", err
	}
	b := append(make([]byte, 0, len(f.Cluster)+usualEndpoint*len(f.Endpoints)), f.Cluster...)
	for _, e := range f.Endpoints {
		if !isRouteAddress(e.Address) {
			return "", fmt.Errorf("%s: %q is not an address of an endpoint", f.Cluster, e.Address)
		}
		b = e.append(append(b, ' '))
	}
	return string(b), nil
}

// usualEndpoint is as long as most are in a line.
const usualEndpoint = 48

func (e RouteEndpoint) append(b []byte) []byte {
	b = e.Address.AppendTo(b)
	for _, n := range e.Numbers() {
		b = strconv.AppendUint(append(b, ','), n, 10)
	}
	return b
}

// Numbers are those that a line has of the endpoint.
func (e RouteEndpoint) Numbers() [5]uint64 {
	micros := func(d time.Duration) uint64 { return uint64(min(max(0, d), MaxRouteTime).Microseconds()) }
	number := func(x, most float64) float64 {
		if !(x >= 0) { // or not a number
			return 0
		}
		return min(x, most)
	}
	return [...]uint64{uint64(e.Weight), micros(e.RTT), micros(e.Service),
		uint64(math.Round(number(e.Workers, MaxRouteWorkers))), uint64(math.Round(number(e.Others, MaxRouteOthers) * 1000))}
}

// ParseRoute splits expectations into its functions' lines. It looks at no endpoint:
// ParseRouteFunction does.
func ParseRoute(data []byte) (c RouteConfig, err error) {
	if len(data) > MaxConfigBytes {
		return c, fmt.Errorf("is %d bytes long, at most %d are allowed", len(data), MaxConfigBytes)
	}
	first, rest, ended := bytes.Cut(data, []byte{'\n'})
	version, session := strings.CutSuffix(string(first), sessionWord)
	if err := checkVersion(version); err != nil {
		return c, err
	}
	c.Session = session
	switch {
	case !ended:
		return c, errors.New("the first line has no end")
	case len(rest) == 0:
		return c, nil
	case rest[len(rest)-1] != '\n':
		return c, errors.New("the last line has no end")
	}
	if err := checkTotal(rest); err != nil {
		return c, err
	}
	c.Lines = strings.Split(string(rest[:len(rest)-1]), "\n")
	return c, checkFunctions(len(c.Lines))
}

func checkTotal(lines []byte) error {
	if n := bytes.Count(lines, []byte{' '}); n > MaxRouteTotal {
		return fmt.Errorf("has %d endpoints, at most %d are allowed", n, MaxRouteTotal)
	}
	return nil
}

// RouteEndpoints is how many endpoints a line has.
func RouteEndpoints(line string) int { return strings.Count(line, " ") }

// RouteCluster is whose line it is.
func RouteCluster(line string) string {
	cluster, _, _ := strings.Cut(line, " ")
	return cluster
}

// ParseRouteFunction reads a line.
func ParseRouteFunction(line string) (RouteFunction, error) {
	cluster, rest, _ := strings.Cut(line, " ")
	n := RouteEndpoints(line)
	if err := checkRoute(cluster, n); err != nil {
		return RouteFunction{}, err
	}
	f := RouteFunction{Cluster: cluster, Endpoints: make([]RouteEndpoint, 0, n)}
	for text := range strings.SplitSeq(rest, " ") {
		e, err := parseRouteEndpoint(text)
		if err != nil {
			return RouteFunction{}, fmt.Errorf("%s: endpoint %.80q: %w", cluster, text, err)
		}
		f.Endpoints = append(f.Endpoints, e)
	}
	return f, nil
}

func parseRouteEndpoint(text string) (e RouteEndpoint, err error) {
	address, rest, _ := strings.Cut(text, ",")
	if e.Address, err = netip.ParseAddrPort(address); err != nil {
		return e, err
	}
	if !isRouteAddress(e.Address) || e.Address.String() != address {
		return e, errors.New("is not an address that Envoy would write so")
	}
	limits := [...]uint64{math.MaxUint32, uint64(MaxRouteTime.Microseconds()), uint64(MaxRouteTime.Microseconds()), MaxRouteWorkers, MaxRouteOthers * 1000}
	var numbers [len(limits)]uint64
	for i, limit := range limits {
		value, after, more := strings.Cut(rest, ",")
		if more != (i < len(limits)-1) {
			return e, fmt.Errorf("does not have %d numbers", len(limits))
		}
		if numbers[i], err = strconv.ParseUint(value, 10, 64); err != nil {
			return e, err
		}
		if numbers[i] > limit {
			return e, fmt.Errorf("%d is over %d", numbers[i], limit)
		}
		rest = after
	}
	e.Weight = uint32(numbers[0])
	e.RTT, e.Service = time.Duration(numbers[1])*time.Microsecond, time.Duration(numbers[2])*time.Microsecond
	e.Workers, e.Others = float64(numbers[3]), float64(numbers[4])/1000
	return e, nil
}

// isRouteAddress takes what can be a header's value and means one endpoint. Envoy writes no
// zone, and an IPv4 address in no other way.
func isRouteAddress(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() > 0 && a.Addr().Zone() == "" && !a.Addr().Is4In6()
}

func checkRoute(cluster string, endpoints int) error {
	if cluster == "" || len(cluster) > maxClusterNameBytes || strings.ContainsFunc(cluster, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("cluster %.80q: must be 1 to %d visible characters of ASCII", cluster, maxClusterNameBytes)
	}
	if endpoints < 1 || endpoints > MaxRouteEndpoints {
		return fmt.Errorf("%s: has %d endpoints, must have 1 to %d", cluster, endpoints, MaxRouteEndpoints)
	}
	return nil
}

func checkFunctions(n int) error {
	if n > MaxFunctions {
		return fmt.Errorf("has %d functions, at most %d are allowed", n, MaxFunctions)
	}
	return nil
}
