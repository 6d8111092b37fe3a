package trust

// Gap is an asset that no test defends against a role yet.
type Gap struct {
	Role  Role
	Asset Asset
	Note  string // what the role gets
}

// Gaps are known. Whoever closes one adds the attack, and removes the gap.
var Gaps = []Gap{
	{AnnotationAuthor, Room, "some 800 annotated Services fill the gateways' configuration, some 2,100 the daemons' message"},
	{Function, Inputs, "two namespaces that may read one store share a fetch, and see by its time that the other one has it"},
	{Function, Calls, "AuthorizationPolicies see the daemon's identity, not the caller's"},
	{Gateway, Speech, "speaks for every function of its node: the keys are in its configuration"},
	{Node, Requests, "a daemon delivers what any other node's daemon hands over"},
	{Node, Credentials, "each node has the credentials of all stores"},
	{ControlPlane, Rights, "writes any EnvoyFilter in Istio's namespace, and scales any workload"},
	{Store, Host, "a name that resolves to a private or link-local address is dialled"},
}
