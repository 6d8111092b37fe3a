// Package accesslog is what a gateway tells the relay of its node of a request: a line of text, which is
// the body of an OpenTelemetry log record. Envoy's own form has some forty fields, of which the relay
// reads eight; writing and reading them cost more than the rest of a request's report.
package accesslog

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Batch is how many bytes of entries a gateway sends together at most. Envoy does not like messages of
// more than 64 KiB of this kind, as it keeps them for another try.
const Batch = 48 << 10

// longest is longer than a request takes: the longest timeout is an hour.
const longest = time.Hour

// A Kind says when an entry was written. Its values are Envoy's, of ACCESS_LOG_TYPE.
type Kind string

// Kinds of entries; others say only that the function is in use.
const (
	Begun  Kind = "UpstreamPoolReady" // the request has its connection
	GoesOn Kind = "UpstreamPeriodic"  // it has lasted another interval
	Ended  Kind = "UpstreamEnd"
)

// Entry is one line. What Envoy does not know, or what no request can have, is zero.
type Entry struct {
	Function string // namespace/name, as the gateway says
	Kind     Kind
	Status   int  // 0: there was no answer
	Broken   bool // the instance, or the way to it, ended the request
	// Lasted is from when the request was there to its end; Took is the part of it in which the
	// instance had the request, if it answered.
	Lasted, Took time.Duration
	Answered     bool
	Named        string         // the endpoint that the route filter has named
	To           netip.AddrPort // where the request went; invalid: to no instance
}

// none is what Envoy writes for what it does not know.
const none = "-"

// fields are a line's. The last is where the request went: the path of a socket may have spaces.
const fields = 8

// Format makes Envoy write lines that Parse reads. Function and named are Envoy's operators for these fields.
func Format(function, named string) string {
	return function + " %ACCESS_LOG_TYPE% %RESPONSE_CODE% %RESPONSE_FLAGS% %DURATION% %COMMON_DURATION(US_TX_BEG:US_RX_END:us)% " +
		named + " %UPSTREAM_HOST%"
}

// Parse reads a line. ok is false if it is none of Format's.
func Parse(line string) (e Entry, ok bool) {
	f := strings.SplitN(line, " ", fields)
	if len(f) < fields {
		return Entry{}, false
	}
	e = Entry{Function: known(f[0]), Kind: Kind(f[1]), Broken: broken(f[3]), Named: known(f[6]), To: instance(f[7])}
	e.Status, _ = strconv.Atoi(f[2])
	e.Took, e.Answered = length(f[5], time.Microsecond)
	// Whole milliseconds would make nothing of short requests.
	lasted, _ := length(f[4], time.Millisecond)
	e.Lasted = max(lasted, e.Took)
	return e, true
}

func known(field string) string {
	if field == none {
		return ""
	}
	return field
}

// length is a time that a request can take. ok is false for others, and for none.
func length(field string, unit time.Duration) (_ time.Duration, ok bool) {
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil || n < 0 || n > int64(longest/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

// instance is an instance's address: no socket of the node, and nothing else.
func instance(field string) netip.AddrPort {
	at, err := netip.ParseAddrPort(field)
	if err != nil || at.Addr().Zone() != "" || at.Port() == 0 { // a zone can have any length
		return netip.AddrPort{}
	}
	return at
}

// broken tells whether it was the instance, or the way to it, that ended the request. The flags are Envoy's.
func broken(flags string) bool {
	if flags == none {
		return false
	}
	for flag := range strings.SplitSeq(flags, ",") {
		switch flag {
		// No connection; it ended; reset; timeouts; not HTTP.
		case "UF", "UC", "UR", "UT", "UMSDR", "UPE":
			return true
		}
	}
	return false
}
