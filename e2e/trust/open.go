package trust

// Gap is an asset that no test defends against a role yet.
type Gap struct {
	Role  Role
	Asset Asset
	Note  string // what the role gets
}

// Gaps are known. Whoever closes one adds the attack, and removes the gap.
var Gaps = []Gap{
	{AnnotationAuthor, Room, "has the control plane look at each of its pods once for each of its Services that select them, up to 1,000 times"},
	{AnnotationAuthor, Room, "has istiod hold all changes of the mesh back for up to 10 s at a time, by Services that it creates without end (PILOT_DEBOUNCE_MAX); anybody who may create Services has"},
	{Function, Room, "with one slow fetch, keeps other namespaces at 8 connections to the same store, where they would have 64"},
	{Function, Room, "holds 64 MiB of a stream's entries for each of its functions, without a limit of the node"},
	{Gateway, Speech, "speaks for each function of the mesh: it has their keys"},
	{Node, Requests, "has the control plane bind requests that nobody sent, with any input of the function's store: for all functions if it has a gateway, otherwise for those that its pods may call, and those with triggers"},
	{Node, Inputs, "spoils the objects that it is the owner of for the other nodes of its site"},
	{Node, Credentials, "has the credentials of all stores, if it has a daemon"},
	{Daemon, Settings, "on the embedded platform only: gives its node's gateway all of its configuration, the filters' module included"},
	{Daemon, Room, "stops the node's gateways with a pipe in place of the file in which they read their key"},
	{ControlPlane, Requests, "sends requests of functions to addresses of its choice"},
	{ControlPlane, Identity, "issues a certificate in any node's name"},
}
