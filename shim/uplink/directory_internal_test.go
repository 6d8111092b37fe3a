package uplink

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/grpc/credentials/insecure"
)

// Each address of each name is a control plane, whatever becomes of the other names.
func TestControlPlanesAreTheAddressesOfTheNames(t *testing.T) {
	errAway := errors.New("no such host")
	names := map[string][]netip.Addr{
		"replicas.svc": {netip.MustParseAddr("10.244.0.7"), netip.MustParseAddr("::ffff:10.244.1.8"), netip.MustParseAddr("fd00::7")},
		"10.244.0.7":   {netip.MustParseAddr("10.244.0.7")},
	}
	c := NewNames("replicas.svc:7443,10.244.0.7:7443,gone.svc:7443,10.244.0.7:7444", "", insecure.NewCredentials())
	c.resolve = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if names[host] == nil {
			return nil, errAway
		}
		return names[host], nil
	}
	got, err := c.Addresses(t.Context())
	want := []string{"10.244.0.7:7443", "10.244.1.8:7443", "[fd00::7]:7443", "10.244.0.7:7444"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	conn, err := c.Dial(got[2])
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	clear(names)
	if got, err := c.Addresses(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("%q, %v", got, err)
	}
}
