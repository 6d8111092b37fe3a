package signals

// Load is one function's requests through one gateway; a report lacks functions that
// have none. Requests with an input go to the daemon, hot or cold; the daemon counts
// those.
type Load struct {
	// Function is namespace/name.
	Function string
	// InFlight is the number of requests without an answer at the end of the interval,
	// those on draining instances among them.
	InFlight uint64
	// Issued is the number of requests since the report before.
	Issued uint64
	// Endpoints are those that had some of them, in no order.
	Endpoints []EndpointLoad
}

// EndpointLoad is one endpoint's part of a Load.
type EndpointLoad struct {
	// Address is ip:port. Requests to the node's own daemon are of no endpoint.
	Address string
	// InFlight is the number of requests without an answer, as above.
	InFlight uint64
	// Succeeded and Failed are how many per second got an answer of a status below 500, and
	// how many another one or none.
	Succeeded, Failed float64
}
