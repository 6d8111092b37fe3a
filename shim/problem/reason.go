package problem

import "errors"

// Reason is a problem's title where something depends on it.
type Reason string

// The reasons on which something depends.
const (
	ReasonBufferFull        Reason = "BufferFull"
	ReasonBufferQuota       Reason = "BufferQuota"
	ReasonBufferTooSmall    Reason = "BufferTooSmall"
	ReasonBufferUnavailable Reason = "BufferUnavailable"
	ReasonClientGone        Reason = "ClientGone"
	ReasonDaemonStopping    Reason = "DaemonStopping"
	ReasonDuplicateRequest  Reason = "DuplicateRequest"
	ReasonFunctionFailed    Reason = "FunctionFailed"
	ReasonFunctionTimeout   Reason = "FunctionTimeout"
	ReasonFunctionUnknown   Reason = "FunctionUnknown"
	ReasonInputChanged      Reason = "InputChanged"
	ReasonInputNotFound     Reason = "InputNotFound"
	ReasonInputTooLarge     Reason = "InputTooLarge"
	// ReasonInstanceGone and ReasonInstanceStopped: the instance ended before it got the request.
	ReasonInstanceGone    Reason = "InstanceGone"
	ReasonInstanceStopped Reason = "InstanceStopped"
	ReasonNotBound        Reason = "NotBound"
	ReasonPeerFailed      Reason = "PeerFailed"
	ReasonPeerUnreachable Reason = "PeerUnreachable"
	ReasonRelayFailed     Reason = "RelayFailed"
	ReasonStoreForbidden  Reason = "StoreForbidden"
	// ReasonStateUnavailable: what a workflow's run comes to cannot be noted.
	ReasonStateUnavailable Reason = "StateUnavailable"
	// ReasonStoreAddressRefused: a store's host is at an address where no store may be.
	ReasonStoreAddressRefused Reason = "StoreAddressRefused"
	ReasonStoreTimeout        Reason = "StoreTimeout"
	ReasonStoreUnavailable    Reason = "StoreUnavailable"
	// ReasonWritePending: another node has acknowledged the object, and the store does not have it yet.
	ReasonWritePending Reason = "WritePending"
)

// Fault says what a failure speaks against.
type Fault int

// The faults.
const (
	// FaultUnknown: perhaps the instance, perhaps what is around it.
	FaultUnknown Fault = iota
	// FaultRequest: the request. The function had it and failed, or its input cannot be had. It
	// also had it when its node's daemon broke the answer off: it is the function that does so, or
	// a request that takes a node with it.
	FaultRequest
	// FaultNobody: neither the request nor the instance. What stands between them is away or
	// changing, and the same request may go well with another try.
	FaultNobody
)

var faults = map[Reason]Fault{
	ReasonBufferTooSmall:  FaultRequest,
	ReasonFunctionFailed:  FaultRequest,
	ReasonFunctionTimeout: FaultRequest,
	ReasonInputChanged:    FaultRequest,
	ReasonPeerFailed:      FaultRequest,
	ReasonStoreTimeout:    FaultRequest,
	ReasonWritePending:    FaultRequest,

	ReasonClientGone:       FaultNobody,
	ReasonDaemonStopping:   FaultNobody,
	ReasonDuplicateRequest: FaultNobody,
	ReasonFunctionUnknown:  FaultNobody,
	ReasonNotBound:         FaultNobody,
	ReasonInstanceGone:     FaultNobody,
	ReasonInstanceStopped:  FaultNobody,
	ReasonPeerUnreachable:  FaultNobody,
	ReasonRelayFailed:      FaultNobody,
	ReasonStateUnavailable: FaultNobody,
}

// FaultOf is what a problem speaks against. Of reasons without a line here, which the control
// plane or another version may have, the status says so.
func FaultOf(p *Problem) Fault {
	if fault, known := faults[Reason(p.Title)]; known {
		return fault
	}
	if p.Status/100 == 4 {
		return FaultRequest
	}
	return FaultUnknown
}

// ReasonOf is why err is one; empty if no problem says so.
func ReasonOf(err error) Reason {
	if p, ok := errors.AsType[*Problem](err); ok {
		return Reason(p.Title)
	}
	return ""
}
