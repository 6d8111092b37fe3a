package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headstart-mesh/headstart/shim/inputs"
	"github.com/headstart-mesh/headstart/shim/ktls"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/objects/buffer/remote"
	"github.com/headstart-mesh/headstart/shim/runtime/notify"
)

// config is what the flags say.
type config struct {
	platform                     string
	stateDir, runDir, secretsDir string
	stores, destinations         string
	controlPlane, controlName    string
	controlPlaneAny              string
	ca, revoked                  string
	peerListen, metricsListen    string
	inputs                       inputs.Config
	cacheAge                     time.Duration
	cacheShare                   bool
	writeBackLimit               int64
	writeBackAfter               time.Duration
	otlp, logLevel               string
	otlpMutualTLS, weightsAlone  bool

	// Of the local platform.
	cert, key              string
	containerd, cniPlugins string
	bridge                 string
	podSubnet              string
	gatewayPort            uint32
	filters                string
	traceSampling          float64

	// Of Kubernetes.
	nodeName, podIP              string
	identity, token              string
	gatewayUID                   int
	meshCA, meshToken, meshRoot  string
	meshTrustDomain, meshCluster string
}

// foreign are the flags that have no meaning on a platform.
var foreign = map[string][]string{
	platformLocal: {"node-name", "pod-ip", "identity", "token", "gateway-uid",
		"mesh-ca", "mesh-token", "mesh-root", "mesh-trust-domain", "mesh-cluster"},
	platformKubernetes: {"cert", "key", "containerd", "cni-plugins", "bridge", "pod-subnet",
		"gateway-port", "filters", "trace-sampling"},
}

// withPodIP is c with the pod's address where --peer-listen has a port only.
func (c config) withPodIP() config {
	if host, port, err := net.SplitHostPort(c.peerListen); c.platform == platformKubernetes && err == nil && host == "" {
		c.peerListen = net.JoinHostPort(c.podIP, port)
	}
	return c
}

// check says what is wrong with the flags, all at once.
func (c config) check() error {
	var errs flagErrors
	wrong := errs.wrong
	if foreign[c.platform] == nil {
		wrong("platform", c.platform, platformLocal+" or "+platformKubernetes)
	}
	// Containerd, the shims and Envoy get paths below them.
	for flag, dir := range map[string]string{"state-dir": c.stateDir, "run-dir": c.runDir} {
		if !filepath.IsAbs(dir) {
			wrong(flag, dir, "an absolute path")
		}
	}
	for _, name := range strings.Split(c.controlPlane, ",") {
		if !isAddress(name) {
			wrong("control-plane", name, "host:port, several with commas between")
		}
	}
	if c.controlPlaneAny != "" && !isAddress(c.controlPlaneAny) {
		wrong("control-plane-any", c.controlPlaneAny, "host:port, or nothing")
	}
	// Other nodes dial it as it is here.
	if a, err := netip.ParseAddrPort(c.peerListen); err != nil || a.Port() == 0 || a.Addr().IsUnspecified() {
		wrong("peer-listen", c.peerListen, "the ip:port where other nodes reach this one, such as 10.201.0.11:7443 or [fd00::b]:7443")
	}
	if c.metricsListen != "" && !isAddress(c.metricsListen) {
		wrong("metrics-listen", c.metricsListen, "ip:port, or nothing for no metrics")
	}
	c.checkBuffer(wrong)
	if c.ca == "" {
		wrong("ca", c.ca, "the file (PEM) with the authority of control plane and nodes")
	}
	if _, err := c.logger(); err != nil {
		errs = append(errs, err)
	}
	if c.platform == platformKubernetes {
		c.checkKubernetes(wrong)
		return errors.Join(errs...)
	}
	if c.cert == "" {
		wrong("cert", c.cert, "the file (PEM) with this node's certificate")
	}
	if c.key == "" {
		wrong("key", c.key, "the file (PEM) with the key of --cert")
	}
	if _, err := c.subnet(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c config) checkBuffer(wrong func(flag, value, use string)) {
	if c.inputs.Disk <= 0 {
		wrong("buffer-limit", strconv.FormatInt(c.inputs.Disk, 10), "a number of bytes above 0")
	}
	if c.inputs.Memory < 0 {
		wrong("buffer-memory", strconv.FormatInt(c.inputs.Memory, 10), "a number of bytes, or 0 for none in memory")
	}
	if c.inputs.Quota.Bytes < 0 {
		wrong(
			"buffer-quota", strconv.FormatInt(c.inputs.Quota.Bytes, 10),
			"a number of bytes, or 0 for three quarters of the buffer",
		)
	}
	if c.inputs.Quota.Entries <= 0 {
		wrong("buffer-quota-inputs", strconv.Itoa(c.inputs.Quota.Entries), "a number above 0")
	}
	if c.cacheAge < 0 {
		wrong("cache-age", c.cacheAge.String(), "a duration, or 0 to keep nothing")
	}
	if c.inputs.Spare < 0 || c.inputs.Spare > 100 {
		wrong("cache-spare", strconv.FormatInt(c.inputs.Spare, 10), "a percentage, 0 to 100")
	}
	if c.writeBackLimit < 0 {
		wrong("write-back-limit", strconv.FormatInt(c.writeBackLimit, 10), "a number of bytes, or 0 to have all writes go through")
	}
	if c.writeBackAfter < 0 {
		wrong("write-back-after", c.writeBackAfter.String(), "a duration of 0 or more")
	}
	if c.inputs.Redis == "" {
		return
	}
	if _, err := remote.ParseAddress(c.inputs.Redis); err != nil {
		// Not repeated: it may hold a password.
		wrong("buffer-redis", "…", "redis://host:port/db, or rediss:// for TLS, and --buffer-redis-secret for credentials")
	}
	if c.inputs.RedisLimit <= 0 {
		wrong("buffer-redis-limit", strconv.FormatInt(c.inputs.RedisLimit, 10), "a number of bytes above 0")
	}
}

func (c config) checkKubernetes(wrong func(flag, value, use string)) {
	if c.nodeName == "" {
		wrong("node-name", c.nodeName, "the name that Kubernetes has for this node")
	}
	if !isAddress(c.identity) {
		wrong("identity", c.identity, "host:port of the control plane's Identity service")
	}
	if c.token == "" {
		wrong("token", c.token, "the file with a service account's token for the audience headstart")
	}
	if c.meshCA == "" {
		return
	}
	if !isAddress(c.meshCA) {
		wrong("mesh-ca", c.meshCA, "host:port of the mesh's authority, or nothing for no mesh")
	}
	if c.meshToken == "" || c.meshRoot == "" {
		wrong("mesh-token, --mesh-root", c.meshToken+", "+c.meshRoot, "the files with a token for the mesh's authority and with its certificate")
	}
}

// flagErrors are all that is wrong with the flags.
type flagErrors []error

func (e *flagErrors) wrong(flag, value, use string) {
	*e = append(*e, fmt.Errorf("--%s %q: use %s", flag, value, use))
}

func isAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	return err == nil && port != ""
}

func (c config) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", c.logLevel)
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})), nil
}

func (c config) subnet() (netip.Prefix, error) {
	p, err := netip.ParsePrefix(c.podSubnet)
	if err != nil {
		return p, fmt.Errorf("--pod-subnet %q: use an address range such as 10.201.1.0/24", c.podSubnet)
	}
	return p, nil
}

func (c config) socket(name string) string { return filepath.Join(c.runDir, name) }
func (c config) state(name string) string  { return filepath.Join(c.stateDir, name) }

// gateway is the path of something for the gateways, which have one directory for it.
func (c config) gateway(name string) string {
	if c.platform == platformLocal {
		return c.socket(name)
	}
	return filepath.Join(c.runDir, "gateway", name)
}

func (c config) gatewaySocket(name string) serve.Listen {
	return serve.UnixFor(c.gateway(name), c.gatewayUID)
}

// otlpCredentials are for connections to --otlp.
func (c config) otlpCredentials(me party) grpc.DialOption {
	if c.otlpMutualTLS {
		return grpc.WithTransportCredentials(me.controlPlane)
	}
	return grpc.WithTransportCredentials(insecure.NewCredentials())
}

const otlpSocket = "otlp.sock"

// shimsOTLP is where shims send their spans, empty for nowhere.
func (c config) shimsOTLP() string {
	if c.platform == platformLocal || c.otlp == "" {
		return c.otlp
	}
	return "unix:" + c.socket(otlpSocket)
}

// inputsOf is what the flags say of inputs.
func (c config) inputsOf(log *slog.Logger) inputs.Config {
	i := c.inputs
	i.StateDir, i.RunDir, i.SecretsDir = c.stateDir, c.runDir, c.secretsDir
	i.Shared, i.Log = c.platform == platformKubernetes, log
	return i
}

// register is what the node says of itself, without its instances.
func (c config) register(process string) *nodeapi.Register {
	r := &nodeapi.Register{Version: nodeapi.Version, PeerAddress: c.peerListen, Process: process, Triggers: true,
		Probes: true, Shares: c.cacheShare, CacheCalls: true, IngressSocket: c.gateway("ingress.sock"), HintSocket: c.gateway("hints.sock")}
	if c.platform == platformLocal {
		r.Process, r.GatewayAddress = "", c.gatewayAddress() // there is never a second daemon
	}
	if err := ktls.Probe(); err != nil {
		r.NoKernelTls = err.Error()
	}
	if err := notify.Available(); err != nil {
		r.NoConnect = err.Error()
	}
	return r
}

// callers are where programs are asked from, where that is a pod's own address and not the node's.
func (c config) callers() []netip.Addr {
	at, err := netip.ParseAddrPort(c.peerListen)
	if err != nil || c.platform != platformKubernetes {
		return nil
	}
	return []netip.Addr{at.Addr().Unmap()}
}

// callersFile has the addresses of the daemon before, which still has requests while this one takes over.
const callersFile = "callers"

// noteCallers are a daemon's callers, and those of the one before if that is still there. It notes the former for the next one.
func (c config) noteCallers(succeeds bool) (all []netip.Addr, err error) {
	own := c.callers()
	if len(own) == 0 {
		return nil, nil
	}
	var before []byte
	if succeeds {
		before, err = os.ReadFile(c.state(callersFile))
	}
	if errors.Is(err, fs.ErrNotExist) { // it is of an earlier version
		err = nil
	}
	all = slices.Clone(own)
	var words []string
	for _, a := range own {
		words = append(words, a.String())
	}
	for word := range strings.FieldsSeq(string(before)) {
		if a, invalid := netip.ParseAddr(word); invalid == nil && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all, errors.Join(err, os.WriteFile(c.state(callersFile), []byte(strings.Join(words, " ")), 0o600))
}

// gatewayAddress is where the node's own gateway takes requests: on all of the node's addresses, of
// which the others know one.
func (c config) gatewayAddress() string {
	host, _, err := net.SplitHostPort(c.peerListen)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(int(c.gatewayPort)))
}
