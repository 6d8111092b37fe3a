// Package testbed sets up what demo, benchmarks and integration tests run on: the
// embedded platform with an edge and a cloud node, and an S3 server in the cloud, with
// an emulated link between edge and cloud. All of it real, all of it gone after Close.
package testbed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/embedded"
	"github.com/headstart-mesh/headstart/control-plane/embedded/network"
)

// The nodes' names.
const (
	Edge  = "edge"
	Cloud = "cloud"
)

// What functions and requests call the S3 server and Redis. Bucket is also the keyspace. Functions write into Bucket
// through, and into Interim behind.
const (
	Store      = "footage"
	RedisStore = "frames"
	// FixedStore is the same S3 server with answers that hold always, where nodes keep objects.
	FixedStore = "fixed"
	Bucket     = "videos"
	Interim    = "interim"
)

const (
	// GatewayPort is every node's.
	GatewayPort = 8080
	// closeTimeout bounds the end of everything.
	closeTimeout = 90 * time.Second
	// bufferLimit has room for several of the largest inputs at a time.
	bufferLimit = 2 << 30
)

// Config says what the testbed is like.
type Config struct {
	// Name tells the testbed's devices and namespaces from others': up to 8 letters.
	Name string
	// BinDir holds what `make build` made.
	BinDir string
	// WorkDir is for state and logs; only the logs are left after Close.
	WorkDir string
	// Nodes, if there are any, replace edge and cloud: see fleet.go.
	Nodes []string
	// NodeRate is the rate of each node's own link in bit/s, if there are Nodes.
	NodeRate int64
	// Subnet is a /16 for the nodes; the one after it is for the store's side.
	Subnet netip.Prefix
	// Delay is one way between edge and cloud, or between Nodes and the store; Rate in bit/s, 0 for no limit.
	Delay time.Duration
	Rate  int64
	// BufferLimit is in bytes per node; 0 for a default. BufferMemory is what each has in
	// memory beside it, 0 for none.
	BufferLimit, BufferMemory int64
	// CacheAge is how long nodes keep objects that no request uses; 0: not at all. They need leave nothing of the disk
	// free, as those of a product do by default: this machine's may be fuller.
	CacheAge time.Duration
	// Share has nodes bring each other what they keep, if they are near each other.
	Share bool
	// Redis asks for one beside the S3 server.
	Redis bool
	// Destinations is the operator's list of destinations, and Secrets what its secrets hold, by name. The caller starts the
	// servers, at ServerAddress.
	Destinations string
	Secrets      map[string]string
	// Progress is told each step.
	Progress func(string)
}

// ServerAddress is where a server of the caller's has a port, in the network namespace that Bed.ServerNamespace says. The
// ports from 7080 on are free.
func (c Config) ServerAddress(port uint16) (netip.AddrPort, error) {
	p, err := planFor(c)
	return netip.AddrPortFrom(p.store, port), err
}

// ServerNamespace is the path of the S3 server's network namespace, in the cloud.
func (b *Bed) ServerNamespace() string { return filepath.Join("/run/netns", namespaceOf(b.c.Name)) }

// Bed is a running testbed.
type Bed struct {
	Platform *embedded.Platform
	S3       *S3
	Redis    *Redis // nil unless asked for
	// RedisPassword is its password.
	RedisPassword string

	c        Config
	lock     io.Closer
	topology *topology
}

// Open starts the testbed. On error nothing is left.
func Open(ctx context.Context, c Config) (_ *Bed, err error) {
	if c.BufferLimit == 0 {
		c.BufferLimit = bufferLimit
	}
	plan, err := planFor(c)
	if err != nil {
		return nil, err
	}
	lock, err := takeLock(c.Name)
	if err != nil {
		return nil, err
	}
	b := &Bed{c: c, lock: lock}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	// What one that was killed left. The platform sweeps its own.
	if err := errors.Join(sweep(c.Name), b.removeInputs()); err != nil {
		return nil, err
	}
	secret, redisPassword := NewSecret(), random()
	stores, secrets, err := b.operator(plan, secret, redisPassword)
	if err != nil {
		return nil, err
	}
	destinations, err := b.destinations(secrets)
	if err != nil {
		return nil, err
	}
	nodes, connect := []string{Edge, Cloud}, connectTwo
	if len(c.Nodes) > 0 {
		nodes, connect = c.Nodes, connectFleet
	}
	b.Platform, err = embedded.Start(ctx, embedded.Options{
		Name: c.Name, Nodes: nodes, Subnet: c.Subnet, StateDir: filepath.Join(c.WorkDir, "state"), RunDir: b.RunDir(),
		BinDir: c.BinDir, CNIPlugins: "/usr/lib/cni", Stores: stores, Destinations: destinations, SecretsDir: secrets, GatewayPort: GatewayPort,
		Buffer:         embedded.Buffer{Disk: c.BufferLimit, Memory: c.BufferMemory, CacheAge: c.CacheAge, CacheShare: c.Share},
		WriteBackLimit: 1 << 30, LogLevel: "info", Progress: c.Progress})
	if err != nil {
		return nil, err
	}
	c.Progress("emulated link")
	if b.topology, err = connect(ctx, c, plan, b.Platform.Nodes()); err != nil {
		return nil, err
	}
	c.Progress("S3 server in the cloud")
	b.S3, err = StartS3(ctx, S3Config{BinDir: c.BinDir, DataDir: filepath.Join(c.WorkDir, "s3", "data"), LogFile: filepath.Join(c.WorkDir, "state", "log", "s3.log"),
		Namespace: plan.namespace, Address: plan.endpoint(), Secret: secret})
	if err != nil {
		return nil, err
	}
	if c.Redis {
		c.Progress("Redis in the cloud")
		b.RedisPassword = redisPassword
		b.Redis, err = StartRedis(ctx, RedisConfig{DataDir: filepath.Join(c.WorkDir, "redis"), LogFile: filepath.Join(c.WorkDir, "state", "log", "redis.log"),
			Namespace: plan.namespace, Address: plan.redis(), Password: redisPassword})
		if err != nil {
			return nil, err
		}
	}
	return b, b.stepAside()
}

// Close ends everything and waits for it. It goes on after an error.
func (b *Bed) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	if b.Redis != nil {
		b.Redis.Close(ctx)
	}
	if b.S3 != nil {
		b.S3.Close(ctx)
	}
	if b.topology != nil {
		errs = append(errs, b.topology.close(ctx))
	}
	if b.Platform != nil {
		errs = append(errs, b.Platform.Stop(ctx))
	}
	for _, dir := range []string{"nodes", "functions.json"} {
		errs = append(errs, os.RemoveAll(filepath.Join(b.c.WorkDir, "state", dir)))
	}
	return errors.Join(append(errs, b.removeInputs(), b.lock.Close())...)
}

// removeInputs removes what Open and startS3 put into WorkDir, and nothing else that may
// lie there.
func (b *Bed) removeInputs() error {
	var errs []error
	for _, name := range []string{"s3", "redis", "secrets", "stores.yaml", "destinations.yaml", filepath.Join("state", "functions.json")} {
		errs = append(errs, os.RemoveAll(filepath.Join(b.c.WorkDir, name)))
	}
	return errors.Join(errs...)
}

// takeLock keeps two testbeds of one name apart. The lock is an abstract socket, on which nobody
// listens: it goes with its holder, and there is no file that could stay.
func takeLock(name string) (io.Closer, error) {
	lock, err := net.Listen("unix", "@headstart-testbed-"+name)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("another testbed %q runs on this machine; wait for it, or end it", name)
	}
	return lock, err
}

// RunDir is where the platform's sockets are: short, for the limit on their paths.
func (b *Bed) RunDir() string { return "/run/" + b.c.Name }

// Client reaches the control plane.
func (b *Bed) Client() *admin.Client { return b.Platform.Client() }

// Node returns one of the nodes.
func (b *Bed) Node(name string) network.Node {
	for _, n := range b.Platform.Nodes() {
		if n.Name == name {
			return n
		}
	}
	panic("no node " + name) // the names are this package's constants, or the configuration's
}

// ControlPlaneIP is this machine's address as the nodes see it.
func (b *Bed) ControlPlaneIP() netip.Addr { return b.Platform.Gateway() }

// PID of a process by its name as in Platform.Status, 0 if it does not run.
func (b *Bed) PID(process string) int {
	for _, s := range b.Platform.Status() {
		if s.Name == process {
			return s.PID
		}
	}
	return 0
}

// Apply deploys functions.
func (b *Bed) Apply(ctx context.Context, functions ...Function) error {
	var manifests []string
	for _, f := range functions {
		manifests = append(manifests, f.manifest(b.S3))
	}
	_, err := b.Client().Apply(ctx, strings.NewReader(strings.Join(manifests, "---\n")))
	return err
}

// Request returns a request to the function through a node's gateway.
func (b *Bed) Request(ctx context.Context, method, node, function, path string) (*http.Request, error) {
	gateway := netip.AddrPortFrom(b.Node(node).Address, GatewayPort)
	r, err := http.NewRequestWithContext(ctx, method, "http://"+gateway.String()+path, nil)
	if err != nil {
		return nil, err
	}
	r.Host = function + ".default.headstart.local"
	return r, nil
}

// operator writes what the platform's operator would: the list of stores, and secrets.
func (b *Bed) operator(p plan, s Secret, redisPassword string) (stores, secrets string, err error) {
	secrets = filepath.Join(b.c.WorkDir, "secrets")
	if err := os.MkdirAll(secrets, 0o700); err != nil {
		return "", "", err
	}
	if err := os.WriteFile(filepath.Join(secrets, Store), []byte(s.File()), 0o600); err != nil {
		return "", "", err
	}
	// A second secret, to see what a wrong one does.
	if err := os.WriteFile(filepath.Join(secrets, "stale"), []byte(StaleSecret.File()), 0o600); err != nil {
		return "", "", err
	}
	stores = filepath.Join(b.c.WorkDir, "stores.yaml")
	entry := "- name: %s\n  s3:\n    endpoint: http://%s\n    pathStyle: true\n    buckets: [%s]\n    credentialsSecret: %s\n"
	list := fmt.Sprintf(entry, Store, p.endpoint(), Bucket+", "+Interim, Store) +
		fmt.Sprintf("    write: {%s: through, %s: back}\n", Bucket, Interim) +
		fmt.Sprintf(entry, StaleStore, p.endpoint(), Bucket, "stale")
	if b.c.CacheAge > 0 {
		list += fmt.Sprintf(entry, FixedStore, p.endpoint(), Bucket, Store) + fmt.Sprintf("  fresh: {%s: always}\n", Bucket)
	}
	if b.c.Redis {
		list += fmt.Sprintf("- name: %s\n  redis: {address: %q, keyspaces: [%s], credentialsSecret: %s}\n", RedisStore, p.redis(), Bucket, RedisStore)
		if err := os.WriteFile(filepath.Join(secrets, RedisStore), []byte("password = "+redisPassword+"\n"), 0o600); err != nil {
			return "", "", err
		}
	}
	return stores, secrets, os.WriteFile(stores, []byte(list), 0o600)
}

// destinations writes the list of destinations and its secrets; empty: there is none.
func (b *Bed) destinations(secrets string) (list string, err error) {
	if b.c.Destinations == "" {
		return "", nil
	}
	for name, content := range b.c.Secrets {
		err = errors.Join(err, os.WriteFile(filepath.Join(secrets, name), []byte(content), 0o600))
	}
	list = filepath.Join(b.c.WorkDir, "destinations.yaml")
	return list, errors.Join(err, os.WriteFile(list, []byte(b.c.Destinations), 0o600))
}

// StaleStore is the same server with credentials that it does not take: StaleSecret.
const StaleStore = "stale"

// StaleSecret is nobody's.
var StaleSecret = Secret{Access: "AKIAFORGOTTENLONGAGO", Key: "wrong-since-the-last-rotation"}

func random() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
