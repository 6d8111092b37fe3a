package trust

// Gap is an asset that no test defends against a role yet.
type Gap struct {
	Role  Role
	Asset Asset
	Note  string // what the role gets
}

// Gaps are known. Whoever closes one adds the attack, and removes the gap.
var Gaps = []Gap{
	{RouteAuthor, Settings, "with a ServiceEntry of its own namespace, leads its own requests to `gateway.sock` or `hints.sock`"},
	{AnnotationAuthor, Room, "some 800 annotated Services fill the gateways' configuration, some 2,100 the daemons' message"},
	{Function, Inputs, "learns by a fetch's time that another namespace, which may read the same store, has the object"},
	{Function, Calls, "passes AuthorizationPolicies that allow the daemon: they do not see the caller"},
	{Gateway, Speech, "speaks for each function of the mesh: it has their keys"},
	{Node, Requests, "hands any request over to any node, in the name of any caller"},
	{Node, Credentials, "has the credentials of all stores"},
	{Daemon, Host, "shows a sandbox any directory of the node, read-only, by a symbolic link in the sandbox's tree"},
	{Daemon, Settings, "gives the node's gateways the `route` filter's module, and so code to run"},
	{ControlPlane, Rights, "writes any EnvoyFilter in Istio's root namespace, and scales any workload"},
	{ControlPlane, Credentials, "has daemons send HTTP stores' credentials to a server of its choice"},
	{Store, Host, "is dialled where its name leads, also to private and link-local addresses"},
}
