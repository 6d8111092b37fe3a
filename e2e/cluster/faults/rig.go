package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/load"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// The functions. Those under load have as many replicas as there are nodes, and the ordinary
// Service is the same but for the annotations.
const (
	hot      = "faults-hot"
	ordinary = "faults-ordinary"
	// odd is the function whose annotations are changed.
	odd = "faults-odd"
	// slow takes slowStart to start.
	slow      = "faults-slow"
	slowStart = 6 * time.Second
	// first and asleep are at zero for certain when a scenario begins: first gets a request
	// then, asleep those that the scenario sends.
	first, asleep = "faults-first", "faults-asleep"
	// bound is at zero until the API server goes just when its pod has a node.
	bound = "faults-bound"
	// plain is not opted in and has no instance: what the cluster can do by itself.
	plain = "faults-plain"
	// scaled is scaled by a HorizontalPodAutoscaler, too; set is a StatefulSet.
	scaled, set = "faults-scaled", "faults-set"
	part        = "faults"
)

var coldFunctions = []string{"faults-cold-0", "faults-cold-1", "faults-cold-2", "faults-cold-3"}

const (
	gatewayName   = "istio-ingressgateway"
	meshNamespace = "istio-system"
	// gateways is how many there are during the faults: with one alone, its own restart
	// loses requests also without Headstart.
	gateways = 2

	// hotRate and inputRate are in requests per second. An input costs the machine, on which
	// all of this runs, some ten milliseconds.
	hotRate, inputRate = 20, 2
	// hotTimeout is longer than Envoy waits for a connection to an instance that is gone.
	hotTimeout = 20 * time.Second
	// aftermath is how long the load goes on when the fault is mended.
	aftermath = 3 * time.Second

	// readyTimeout is what cold functions may take to start. A request waits 2 s longer for
	// that, and a busy machine takes its time to say so.
	readyTimeout, readySlack = 30 * time.Second, 4 * time.Second
	// startingMost is how many functions may be just starting when the API server goes: bound
	// is, first may be, and one of coldFunctions.
	startingMost = 3

	// inputSize is in MB.
	inputSize = 1

	settleTimeout = 3 * time.Minute
	retryInterval = 300 * time.Millisecond
	mendTimeout   = time.Minute
	endTimeout    = 2 * time.Minute
)

// rig is the world with the functions that get the load.
type rig struct {
	*world.World
	kube     *kubernetes.Clientset
	idle     func()       // closes connections to the API server
	client   *http.Client // for requests one by one
	entry    string       // where requests go to
	key      string       // the input's
	victim   string       // the node that clearVictim has chosen
	progress func(string)
}

// newRig deploys the functions. On error they are left for the one who looks for the reason.
func newRig(ctx context.Context, w *world.World, progress func(string)) (*rig, error) {
	config, err := w.REST()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	r := &rig{World: w, progress: progress, idle: func() { utilnet.CloseIdleConnectionsFor(client.Transport) }, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	if r.kube, err = kubernetes.NewForConfigAndClient(config, client); err != nil {
		return nil, err
	}
	video, err := coldrun.Generated(ctx, w.Cloud.S3, inputSize)
	if err != nil {
		return nil, err
	}
	r.key = video.Object
	input := map[string]string{"headstart.dev/input": "s3://{header.x-bucket}/{header.x-key}", "headstart.dev/store": world.StoreName}
	with := func(more ...string) map[string]string {
		all := map[string]string{}
		for k, v := range input {
			all[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	functions := []world.Function{
		{Name: hot, Part: part, Replicas: 3, Annotations: with("headstart.dev/scale-to-zero", "10m")},
		{Name: ordinary, Part: part, Replicas: 3},
		{Name: plain, Part: part},
		{Name: odd, Part: part, Replicas: 2, Annotations: with("headstart.dev/scale-to-zero", "10m")},
		{Name: slow, Part: part, Annotations: with("headstart.dev/scale-to-zero", "2s", "headstart.dev/ready-timeout", "20s"), Env: map[string]string{"FIRE_STARTUP": slowStart.String()}},
	}
	for _, own := range []world.Function{{Name: scaled, Replicas: 1}, {Name: set, Replicas: setReplicas, StatefulSet: true}} {
		own.Part, own.Annotations = part, with("headstart.dev/scale-to-zero", scaledIdle.String())
		functions = append(functions, own)
	}
	for _, name := range append([]string{first, asleep, bound}, coldFunctions...) {
		functions = append(functions, world.Function{Name: name, Part: part, Annotations: with("headstart.dev/scale-to-zero", "2s", "headstart.dev/ready-timeout", readyTimeout.String())})
	}
	progress(fmt.Sprintf("%d functions, %d gateways", len(functions), gateways))
	if err := w.Deploy(ctx, functions...); err != nil {
		return nil, err
	}
	if err := r.kubectl(ctx, "-n", meshNamespace, "scale", "deployment", gatewayName, fmt.Sprintf("--replicas=%d", gateways)); err != nil {
		return nil, err
	}
	entry, err := w.Gateway(ctx)
	if err != nil {
		return nil, err
	}
	r.entry = "http://" + entry.String()
	return r, nil
}

// close removes the functions, and the second gateway.
func (r *rig) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	defer r.idle()
	return errors.Join(
		r.kubectl(ctx, "-n", world.Functions, "delete", "deployment,statefulset,horizontalpodautoscaler,service,virtualservice,destinationrule", "-l", "part="+part, "--ignore-not-found"),
		r.kubectl(ctx, "-n", meshNamespace, "scale", "deployment", gatewayName, "--replicas=1"))
}

func (r *rig) kubectl(ctx context.Context, args ...string) error {
	return r.Tool(ctx, nil, "kubectl", args...)
}

// request returns what makes requests to a function.
func (r *rig) request(function, path string, input bool) func(context.Context) (*http.Request, error) {
	return func(ctx context.Context) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.entry+path, nil)
		if err != nil {
			return nil, err
		}
		req.Host = world.Function{Name: function}.Host()
		if input {
			req.Header.Set("x-bucket", testbed.Bucket)
			req.Header.Set("x-key", r.key)
		}
		return req, nil
	}
}

// start begins the load; end takes its result into an outcome.
func (r *rig) start(ctx context.Context, refusals []refusal) (end func(*Outcome)) {
	begin := func(function, path string, input bool, rate float64) *load.Load {
		return load.Start(ctx, load.Config{Request: r.request(function, path, input), Rate: rate, Timeout: hotTimeout})
	}
	hotLoad, ordinaryLoad := begin(hot, "/healthz", false, hotRate), begin(ordinary, "/healthz", false, hotRate)
	inputLoad, ordinaryInputLoad := begin(hot, "/", true, inputRate), begin(ordinary, "/", true, inputRate)
	cold := r.knock(ctx, refusals)
	return func(o *Outcome) {
		o.Cold.add(cold(), refusals)
		o.Hot = Pair{Function: hotLoad.Stop(), Ordinary: ordinaryLoad.Stop()}
		o.Input = Pair{Function: inputLoad.Stop(), Ordinary: ordinaryInputLoad.Stop()}
	}
}

// settle waits until all is well.
func (r *rig) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := r.rolledOut(ctx); err != nil {
		return err
	}
	if err := testbed.Poll(ctx, settleTimeout, r.nodesReady); err != nil {
		return err
	}
	return testbed.Poll(ctx, settleTimeout, func(ctx context.Context) error {
		if !r.atZero(ctx, first) || !r.atZero(ctx, asleep) || !r.atZero(ctx, bound) {
			return errors.Join(errors.New("functions without requests are not at zero"), wait(ctx, retryInterval))
		}
		// Of the cold ones that whose turn is last: the others may go to zero meanwhile.
		for _, function := range []string{hot, ordinary, odd, coldFunctions[len(coldFunctions)-1]} {
			if a := r.ask(ctx, function); !a.ok() {
				return errors.Join(fmt.Errorf("function %s: %v", function, a), wait(ctx, retryInterval))
			}
		}
		return nil
	})
}

// rolledOut waits until all pods are there that should be.
func (r *rig) rolledOut(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, what := range [][3]string{
		{"deployment", gatewayName, meshNamespace}, {"deployment", "istiod", meshNamespace},
		{"daemonset", "headstart-node", world.System}, {"daemonset", "headstart-installer", world.System}, {"deployment", "headstart-controlplane", world.System},
		{"deployment", hot, world.Functions}, {"deployment", ordinary, world.Functions}, {"deployment", odd, world.Functions},
	} {
		g.Go(func() error {
			return r.kubectl(ctx, "-n", what[2], "rollout", "status", what[0]+"/"+what[1], "--timeout", settleTimeout.String())
		})
	}
	return g.Wait()
}

func (r *rig) nodesReady(ctx context.Context) error {
	nodes, err := r.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		if n.Spec.Unschedulable || n.Labels["headstart.dev/node"] != "ready" {
			return fmt.Errorf("node %s takes no functions", n.Name)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return errors.Join(fmt.Errorf("node %s is not ready", n.Name), wait(ctx, retryInterval))
			}
		}
	}
	return nil
}

// takeAway takes an object out of the cluster and returns what puts it back as the chart has
// made it.
func (r *rig) takeAway(ctx context.Context, kind, name, namespace string) (back func(context.Context) error, err error) {
	manifest, err := r.Output(ctx, nil, "helm", "get", "manifest", "headstart", "-n", world.System)
	if err != nil {
		return nil, err
	}
	var object string
	for document := range strings.SplitSeq(manifest, "\n---") {
		if strings.Contains(document, "\nkind: "+kind+"\n") && strings.Contains(document, "\n  name: "+name+"\n") {
			object = document
		}
	}
	if object == "" {
		return nil, fmt.Errorf("the chart has no %s %s", kind, name)
	}
	args := []string{"delete", strings.ToLower(kind), name, "--wait"}
	if namespace != "" {
		args = append(args, "-n", namespace)
	}
	if err := r.kubectl(ctx, args...); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mendTimeout)
		defer cancel()
		return r.Tool(ctx, strings.NewReader(object), "kubectl", "apply", "--server-side", "--field-manager=helm", "-f", "-")
	}, nil
}
