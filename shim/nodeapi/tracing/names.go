// Package tracing holds what every part of Headstart must agree on for one request to
// become one trace: span and attribute names, and how spans leave a process.
// docs/reference/traces.md describes them for users.
package tracing

import "go.opentelemetry.io/otel/attribute"

// Services as they appear in service.name.
const (
	// ServiceGateway is a node's Envoy.
	ServiceGateway = "headstart-gateway"
	// ServiceNode is the node's daemon.
	ServiceNode = "headstart-node"
	// ServiceControlPlane is the control plane.
	ServiceControlPlane = "headstart-controlplane"
	// ServiceShim is the containerd shim of one sandbox.
	ServiceShim = "containerd-shim-headstart"
)

// Span names.
const (
	// Gateway is Envoy's server span: the whole request, the root of the trace unless
	// the client brought a traceparent. Whoever looks for it goes by ServiceGateway:
	// a route may give it another name.
	Gateway = "gateway"
	// Activation is the time that a daemon holds a request, from its arrival to the end
	// of its answer.
	Activation = "activation"
	// Placement is the control plane's choice of an instance and its node.
	Placement = "placement"
	// SandboxCreate is the daemon's work with containerd until the sandbox is made.
	SandboxCreate = "sandbox.create"
	// RuncCreate and RuncStart are the shim's calls to runc.
	RuncCreate = "runc.create"
	RuncStart  = "runc.start"
	// RuntimeStart is from the made sandbox to the function's readiness.
	RuntimeStart = "runtime.start"
	// Fetch is the input's way from the store to the node's buffer.
	Fetch = "fetch"
	// Receive is the way of a request's own body, where that is the input, from whoever
	// sends it into the node's buffer.
	Receive = "receive"
	// Transfer is the way of a request or its input to where the function is: to
	// another node's daemon, or from the buffer into the sandbox.
	Transfer = "transfer"
	// Deliver is until the function has the whole request.
	Deliver = "deliver"
	// Execute is from there to the last byte of the function's answer.
	Execute = "execute"
	// Trigger is one delivery of a stream's entry to a function, by the daemon that consumes
	// the stream: the root of the trace unless the entry brought a traceparent.
	Trigger = "trigger"
	// Relay is, of a request that another autoscaler takes (Knative), all from there on: it
	// starts the function, takes the input as it arrives, and passes the answer on. Nobody
	// here sees where one ends and the next begins.
	Relay = "relay"
	// Job is a container that runs once, from its placement, or on Kubernetes from when its
	// node hears of it, to its end: the root of its trace.
	Job = "job"
	// Call is a function's call of another by its socket, from the request's arrival to the
	// end of its answer.
	Call = "call"
	// Step is a workflow's call of a function, from its turn to the end of the answer.
	Step = "step"
	// Read is a function's reading of an input by its socket.
	Read = "read"
	// S3 is a function's request to S3 on its node.
	S3 = "s3"
	// Volume is the way of a volume to the node, as far as a container waited for it.
	Volume = "volume"
	// Connection is the hand-over of a connection to a program.
	Connection = "connection"
)

// EventPlacedAgain is the event of an Activation whose request nobody got, and that is placed
// again.
const EventPlacedAgain = "placed again"

// Attributes of the OpenTelemetry FaaS conventions.
const (
	// FaaSName is the function's namespace/name.
	FaaSName = attribute.Key("faas.name")
	// FaaSColdStart tells whether the request had to wait for a new instance.
	FaaSColdStart = attribute.Key("faas.coldstart")
	// FaaSInvocationID is the same value as Request.
	FaaSInvocationID = attribute.Key("faas.invocation_id")
	// FaaSTrigger is TriggerPubSub on a Trigger, and TriggerHTTP on the request that it makes
	// as on all others.
	FaaSTrigger = attribute.Key("faas.trigger")

	// TriggerHTTP and TriggerPubSub are the values of FaaSTrigger.
	TriggerHTTP   = "http"
	TriggerPubSub = "pubsub"
)

// Headstart's own attributes.
const (
	// Request is the value of x-headstart-request: 32 lower-case hexadecimal digits.
	Request = attribute.Key("headstart.request")
	// Endpoint is ip:port of the instance that the gateway's filter picked.
	Endpoint = attribute.Key("headstart.endpoint")
	// Session is the same in base64, as gateways of a mesh tell it: the value of
	// x-headstart-session.
	Session = attribute.Key("headstart.session")
	// UpstreamAddress is, in Envoy's own words, where the gateway sent the request.
	UpstreamAddress = attribute.Key("upstream_address")
	// Function is the function's namespace/name.
	Function = attribute.Key("headstart.function")
	// Node is the name of the node that the span is about.
	Node = attribute.Key("headstart.node")
	// Instance is the id of the instance, which is also its sandbox's.
	Instance = attribute.Key("headstart.instance")
	// InputName is the name of an input that has one.
	InputName = attribute.Key("headstart.input.name")
	// InputBytes is the size of the input in bytes.
	InputBytes = attribute.Key("headstart.input.bytes")
	// InputScheme is the scheme of the input reference, such as s3. The reference
	// itself stays out of spans: object keys may tell of people.
	InputScheme = attribute.Key("headstart.input.scheme")
	// InputWay is how the input came to the node: store, peer, shared, hit or revalidated.
	InputWay = attribute.Key("headstart.input.way")
	// InputPeer is the node that an input of the way peer came from.
	InputPeer = attribute.Key("headstart.input.peer")
	// VolumeName is what a program finds a volume by, and VolumeWay how the volume came to the node: made or hit.
	VolumeName = attribute.Key("headstart.volume.name")
	VolumeWay  = attribute.Key("headstart.volume.way")
	// ConnectionDestination is the name of the server in the operator's list, and ConnectionWay where the connection to it
	// came from: pool, ahead or fresh.
	ConnectionDestination = attribute.Key("headstart.connection.destination")
	ConnectionWay         = attribute.Key("headstart.connection.way")
	// WorkflowTask is where a workflow's document has the task of a Step (JSON pointer).
	WorkflowTask = attribute.Key("headstart.workflow.task")
	// Ahead tells of a Step that it began before its turn.
	Ahead = attribute.Key("headstart.ahead")
	// RelayAddress is host:port of who takes the request in a Relay.
	RelayAddress = attribute.Key("headstart.relay.address")
	// TransferKind is TransferLocal or TransferPeer.
	TransferKind = attribute.Key("headstart.transfer.kind")
	// TriggerEntry is the id of the stream's entry that a Trigger delivers, and TriggerTry
	// how often it was taken from the stream, this time included.
	TriggerEntry = attribute.Key("headstart.trigger.entry")
	TriggerTry   = attribute.Key("headstart.trigger.try")
	// Degraded is the reason, one CamelCase word, why Headstart let the request go on
	// without its help.
	Degraded = attribute.Key("headstart.degraded")
	// Reason is, of an EventPlacedAgain, why the request did not reach the instance before.
	Reason = attribute.Key("headstart.reason")

	// TransferLocal: gateway and target are one node, nothing is copied.
	TransferLocal = "local"
	// TransferPeer: bytes go to another node's daemon.
	TransferPeer = "peer"
)
