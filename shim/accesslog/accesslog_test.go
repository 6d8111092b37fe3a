package accesslog_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headstart-mesh/headstart/shim/accesslog"
)

var same = cmpopts.EquateComparable(netip.AddrPort{})

func TestLines(t *testing.T) {
	here := netip.MustParseAddrPort("10.0.0.1:8080")
	for line, want := range map[string]accesslog.Entry{
		"default/fire UpstreamPoolReady 0 - 0 - - 10.0.0.1:8080": {Function: "default/fire", Kind: accesslog.Begun, To: here},
		"default/fire UpstreamPeriodic 200 - 1000 - - 10.0.0.1:8080": {
			Function: "default/fire", Kind: accesslog.GoesOn, Status: 200, Lasted: time.Second, To: here},
		"default/fire UpstreamEnd 200 - 12 11250 10.0.0.1:8080 10.0.0.1:8080": {Function: "default/fire", Kind: accesslog.Ended, Status: 200,
			Lasted: 12 * time.Millisecond, Took: 11250 * time.Microsecond, Answered: true, Named: "10.0.0.1:8080", To: here},
		"default/fire UpstreamEnd 200 - 0 302 - [fd00::1]:8080": {Function: "default/fire", Kind: accesslog.Ended, Status: 200,
			Lasted: 302 * time.Microsecond, Took: 302 * time.Microsecond, Answered: true, To: netip.MustParseAddrPort("[fd00::1]:8080")},
		"default/fire UpstreamEnd 503 UF,URX 3 - - 10.0.0.1:8080": {
			Function: "default/fire", Kind: accesslog.Ended, Status: 503, Broken: true, Lasted: 3 * time.Millisecond, To: here},
		"default/fire UpstreamEnd 0 DC 3 - - 10.0.0.1:8080": {
			Function: "default/fire", Kind: accesslog.Ended, Lasted: 3 * time.Millisecond, To: here},
		"default/fire UpstreamEnd 200 - 3 - - /run/a room/ingress.sock": {
			Function: "default/fire", Kind: accesslog.Ended, Status: 200, Lasted: 3 * time.Millisecond},
		// Times that cannot be, and addresses that are no instance's.
		"- - - - -1 -1 - -": {Kind: "-"},
		"a X 200 - 3600001 3600000001 - fire.default:80":        {Function: "a", Kind: "X", Status: 200},
		"a X 200 - 9223372036854775807 x - [fe80::1%made-up]:1": {Function: "a", Kind: "X", Status: 200},
		"a X 200 - 99999999999999999999 x - 10.0.0.1:0":         {Function: "a", Kind: "X", Status: 200},
	} {
		got, ok := accesslog.Parse(line)
		if d := cmp.Diff(want, got, same); !ok || d != "" {
			t.Errorf("%q: %v (-want +got):\n%s", line, ok, d)
		}
	}
	for _, line := range []string{"", "default/fire", "a b c d e f g"} {
		if got, ok := accesslog.Parse(line); ok {
			t.Errorf("%q is %+v", line, got)
		}
	}
}

// Each flag of these is the instance's, or the way's; a client that leaves is not.
func TestWhatBreaksARequest(t *testing.T) {
	for flag, want := range map[string]bool{"UF": true, "UC": true, "UR": true, "UT": true, "UMSDR": true, "UPE": true, "DC": false, "URX": false, "-": false} {
		if e, _ := accesslog.Parse("a UpstreamEnd 0 " + flag + " 1 - - 10.0.0.1:80"); e.Broken != want {
			t.Errorf("%s: %v", flag, e.Broken)
		}
	}
}

// Whoever has the gateways' socket can send any line.
func FuzzParse(f *testing.F) {
	f.Add("default/fire UpstreamEnd 200 - 12 11250 10.0.0.1:8080 10.0.0.1:8080")
	f.Add("default/fire UpstreamEnd 503 UF,URX 3 - - /run/a room/ingress.sock")
	f.Fuzz(func(t *testing.T, line string) {
		e, ok := accesslog.Parse(line)
		if d := cmp.Diff(accesslog.Entry{}, e, same); !ok && d != "" {
			t.Errorf("no entry, and yet %s", d)
		}
		for _, took := range []time.Duration{e.Took, e.Lasted - e.Took} {
			if took < 0 || took > time.Hour {
				t.Errorf("took %v", took)
			}
		}
		if strings.Contains(e.Function, " ") || e.To.IsValid() && (e.To.Port() == 0 || e.To.Addr().Zone() != "") {
			t.Errorf("%+v", e)
		}
	})
}
