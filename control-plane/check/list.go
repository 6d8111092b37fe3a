package check

// The IDs that checks are needed by.
const (
	idKubernetes   = "kubernetes"
	idIstio        = "istio"
	idControlPlane = "control-plane"
	idAdmin        = "admin"
	idDaemons      = "daemons"
	idAdmission    = "admission"
)

// Sections of the Docs page.
const (
	anchorUnanswered   = "the-api-server-does-not-answer"
	anchorOld          = "kubernetes-is-too-old"
	anchorRights       = "the-installation-lacks-rights"
	anchorNode         = "a-node-does-not-get-ready"
	anchorIstio        = "istio-is-missing-or-too-old"
	anchorScaling      = "a-function-is-not-scaled-to-zero"
	anchorControlPlane = "the-control-plane-is-not-available"
	anchorInCharge     = "no-control-plane-is-in-charge"
	anchorAuthority    = "certificates-are-not-issued"
	anchorConnected    = "a-daemon-does-not-connect"
	anchorRuntimeClass = "pods-with-the-runtime-class-do-not-start"
	anchorAnnotations  = "annotations-are-refused"
	anchorRoutes       = "routes-are-refused"
	anchorStores       = "inputs-are-refused"
	anchorDestinations = "connections-are-not-in-place"
	anchorGateways     = "a-gateway-does-not-use-headstart"
	anchorLocal        = "callers-get-no-answer-from-their-nodes-gateway"
	anchorFilter       = "inputs-are-not-prefetched"
	anchorCache        = "a-node-cannot-keep-what-it-fetches"
	anchorMesh         = "gateways-do-not-get-the-configuration"
)

const hintOverlay = "Install the gateways with the overlay: `istioctl install -f your-own.yaml -f manifests/istio/install.yaml`"

// hintUnanswered takes the place of a check's own.
const hintUnanswered = "See that the context is the right one (`kubectl config get-contexts`), and that `kubectl version` gets an answer."

var kubernetes = Check{ID: idKubernetes, Name: "Kubernetes", Anchor: anchorOld, run: lookKubernetes,
	Hint: "Upgrade the cluster to Kubernetes 1.30 or later, or name another one by --context."}

// Before returns the checks before the installation.
func Before() []Check {
	need := []string{idKubernetes}
	return []Check{
		kubernetes,
		{ID: "admission-api", Name: "Admission policies", Needs: need, Anchor: anchorOld, run: lookAdmissionAPI,
			Hint: "Enable admissionregistration.k8s.io/v1 in the API server; without it wrong annotations are found by `headstart check` only."},
		{ID: "rights", Name: "Rights to install", Needs: need, Anchor: anchorRights, run: lookRights,
			Hint: "Install as a cluster administrator, or have one grant you these rights."},
		{ID: "containerd", Name: "Container runtimes", Needs: need, Anchor: anchorNode, run: lookContainerd,
			Hint: "Headstart leaves these nodes alone. Use nodes with Linux and containerd 1.6 or later."},
		{ID: "kernel", Name: "Kernels", Needs: need, Anchor: anchorNode, run: lookKernel,
			Hint: "Upgrade these nodes; Headstart is not tested with kernels before 5.4."},
		{ID: idIstio, Name: "Istio", Needs: need, Anchor: anchorIstio, run: lookIstio,
			Hint: "Install Istio 1.30 or later. Without it no request comes to Headstart; with an older one use the WasmPlugin."},
		{ID: "filter-api", Name: "Filter's API", Needs: []string{idKubernetes, idIstio}, Anchor: anchorIstio, run: lookFilterAPI,
			Hint: "Install all CRDs of your Istio version."},
		{ID: "autoscalers", Name: "Other autoscalers", Needs: need, Anchor: anchorScaling, run: lookAutoscalers},
		{ID: "overlay", Name: "Gateways' overlay", Needs: []string{idKubernetes, idIstio}, Anchor: anchorGateways, run: lookOverlay,
			Hint: hintOverlay + "."},
	}
}

// After returns the checks of an installation.
func After() []Check {
	need := []string{idKubernetes}
	return []Check{
		kubernetes,
		{ID: idControlPlane, Name: "Control plane", Needs: need, Anchor: anchorControlPlane, run: lookControlPlane,
			Hint: "Install Headstart, or name its namespace by --headstart-namespace. If it is installed, see the Deployment's events and log."},
		{ID: idAdmin, Name: "Control plane's answers", Needs: []string{idControlPlane}, Anchor: anchorControlPlane, run: lookAdmin,
			Hint: "See the control plane's log. It needs the right to create pods/portforward in its namespace to ask it."},
		{ID: "in-charge", Name: "In charge", Needs: []string{idControlPlane}, Anchor: anchorInCharge, run: lookInCharge,
			Hint: "Apply the chart again: it brings the Lease, and the right to make and to write it. The control planes' logs say which one they lack."},
		{ID: "authority", Name: "Certificate authority", Needs: []string{idControlPlane}, Anchor: anchorAuthority, run: lookAuthority,
			Hint: "Restart the control plane, which makes and publishes it. To get a new one, remove Secret headstart-ca before."},
		{ID: idDaemons, Name: "Node daemons", Needs: []string{idControlPlane}, Anchor: anchorNode, run: lookDaemons,
			Hint: "See the events of these pods, and the log of their container node."},
		{ID: "nodes", Name: "Nodes", Needs: []string{idDaemons}, Anchor: anchorNode, run: lookNodes,
			Hint: "See the log of the headstart-installer pods on these nodes: the installer labels a node when a sandbox has run there."},
		{ID: "connected", Name: "Daemons connected", Needs: []string{idAdmin}, Anchor: anchorConnected, run: lookConnected,
			Hint: "See the log of the daemons on these nodes: it says why the control plane does not take them."},
		{ID: "cache", Name: "Cache", Needs: []string{idAdmin}, Anchor: anchorCache, run: lookCache,
			Hint: "Give these nodes more disk, or a healthy one; `headstart cache usage` shows what they have."},
		{ID: "runtime-class", Name: "RuntimeClass", Needs: need, Anchor: anchorRuntimeClass, run: lookRuntimeClass,
			Hint: "Apply the chart again: it brings the RuntimeClass."},
		{ID: idAdmission, Name: "Admission policies", Needs: need, Anchor: anchorAnnotations, run: lookAdmission,
			Hint: "Apply the chart again: it brings policies and bindings. Until then wrong annotations are not refused."},
		{ID: "routes", Name: "Routes", Needs: []string{idAdmission}, Anchor: anchorRoutes, run: lookRoutes,
			Hint: "Remove these headers and addresses: daemons do not believe them, and the API server refuses the next change of these objects."},
		{ID: "stores", Name: "Stores", Needs: []string{idControlPlane}, Anchor: anchorStores, run: lookStores,
			Hint: "Fix the list of stores, or create what it names."},
		{ID: "destinations", Name: "Destinations", Needs: []string{idControlPlane}, Anchor: anchorDestinations, run: lookDestinations,
			Hint: "Fix the list of destinations, or create what it names."},
		{ID: "connections", Name: "Connections", Needs: []string{idAdmin}, Anchor: anchorDestinations, run: lookConnections,
			Hint: "Use a kernel with the module tls, and of 5.6 or later. Until then connections end with the daemon, and programs connect by themselves."},
		{ID: "annotations", Name: "Annotations", Needs: need, Anchor: anchorAnnotations, run: lookAnnotations,
			Hint: "Until they are fixed, these functions run as if they had no annotations."},
		{ID: "scaling", Name: "Scaling to zero", Needs: need, Anchor: anchorScaling, run: lookScaling,
			Hint: "Only one may scale a workload to zero: leave that to Headstart or to the other autoscaler. " +
				"With KEDA or Knative, remove the annotation: they would start it again."},
		{ID: "gateways", Name: "Gateways", Needs: need, Anchor: anchorGateways, run: lookGateways,
			Hint: hintOverlay + ", on nodes with a daemon."},
		{ID: "local-gateways", Name: "Callers' own gateways", Needs: need, Anchor: anchorLocal, run: lookLocalGateways,
			Hint: "See why these nodes have none that is ready: the DaemonSet's pods, or a node without a daemon. Until then have pods there call another gateway's Service."},
		{ID: "prefetch-filter", Name: "Prefetch filter", Needs: need, Anchor: anchorFilter, run: lookFilter,
			Hint: "Apply manifests/istio/traffic-extension.yaml, or wasm-plugin.yaml for Istio before 1.30. Its configuration comes from the control plane."},
		{ID: "envoy-filters", Name: "EnvoyFilters", Needs: need, Anchor: anchorMesh, run: lookEnvoyFilters,
			Hint: "Apply manifests/istio/gateways.yaml and keys.yaml. The others are the control plane's: its log says what Istio does not take."},
		{ID: "functions", Name: "Functions", Needs: []string{idAdmin}, Anchor: anchorMesh, run: lookFunctions,
			Hint: "`headstart status` shows the events of these functions."},
	}
}
