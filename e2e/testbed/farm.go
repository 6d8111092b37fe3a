package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netns"

	"github.com/headstart-mesh/headstart/control-plane/embedded"
	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/cluster/pki"
	"github.com/headstart-mesh/headstart/e2e/linkemu"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

// What the servers of a farm know functions by.
const (
	FarmUser     = "app"
	FarmDatabase = "shop"
	// FarmRoots is no name.
	FarmRoots = "FARM-ROOTS"
	// farmSecret is the secret's name.
	farmSecret = "farm"
)

// The ports of a farm's servers.
const (
	PostgresPort  = 5432
	FarmRedisPort = 6379
	EchoPort      = 7000
	EchoTLSPort   = 7001
)

// The parts of the store's side that the farm's servers have, by the number of their distance.
const (
	farmServers = 10
	farmLinks   = 100
)

// Distance is how far servers are from a farm's node.
type Distance struct {
	Name string
	// RTT is that of the way to them; 0: they are in the node's own network.
	RTT time.Duration
}

// FarmConfig says what a farm is like.
type FarmConfig struct {
	Config    // its Name, BinDir, WorkDir, Subnet and Progress
	Distances []Distance
	// Settings are further ones of PostgreSQL.
	Settings []string
	// Destinations is appended to the list of those that the farm has by itself; FarmRoots in it stands for what its
	// servers are verified with. Secrets are theirs, passwords by name.
	Destinations string
	Secrets      map[string]string
}

// Farm is a bed of one node with servers at several distances, each on a machine of its own. The node's destinations
// are tcp-, tls-, postgres- and redis- with the distance's name, and the same with -sandbox behind it, whose
// connections are made in sandboxes.
type Farm struct {
	*Bed
	// Authority signs the servers' certificates, Password is what they want.
	Authority *pki.Authority
	Password  string
	// Servers are in the order of the distances.
	Servers []*Servers

	links *process.Group
}

// Servers are those of one distance. Postgres and Redis want User and Password; Postgres, by verify-full.
type Servers struct {
	Distance
	// Address is that of all.
	Address  netip.Addr
	Postgres *Postgres
	Redis    *Redis
	// PgBouncer is on the node.
	PgBouncer *PgBouncer

	echoes []*echo
}

// OpenFarm starts a farm. On error nothing is left.
func OpenFarm(ctx context.Context, c FarmConfig) (_ *Farm, err error) {
	lock, err := takeLock(c.Name)
	if err != nil {
		return nil, err
	}
	f := &Farm{Bed: &Bed{c: c.Config, lock: lock}, Password: random(), links: process.New(func(process.Exit) {})}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if f.Authority, err = pki.New(); err != nil {
		return nil, err
	}
	for i, d := range c.Distances {
		f.Servers = append(f.Servers, &Servers{Distance: d, Address: f.at(farmServers+i, 1)})
	}
	if err := errors.Join(f.sweep(), f.removeInputs()); err != nil {
		return nil, err
	}
	list, secrets, err := f.operator(c)
	if err != nil {
		return nil, err
	}
	f.Platform, err = embedded.Start(ctx, embedded.Options{
		Name: c.Name, Nodes: []string{Edge}, Subnet: c.Subnet, StateDir: filepath.Join(c.WorkDir, "state"),
		RunDir: f.RunDir(),
		BinDir: c.BinDir, CNIPlugins: "/usr/lib/cni", Destinations: list, SecretsDir: secrets, GatewayPort: GatewayPort,
		Buffer: embedded.Buffer{Disk: bufferLimit}, LogLevel: "info", Progress: c.Progress})
	if err != nil {
		return nil, err
	}
	for i, s := range f.Servers {
		c.Progress("servers at the distance " + s.Name)
		if err := f.start(ctx, i, s, c.Settings); err != nil {
			return nil, fmt.Errorf("distance %s: %w", s.Name, err)
		}
	}
	return f, f.stepAside()
}

// at is an address of the servers' side.
func (f *Farm) at(third, last int) netip.Addr {
	a := f.c.Subnet.Addr().As4()
	return netip.AddrFrom4([4]byte{a[0], a[1] + 1, byte(third), byte(last)})
}

// operator writes the list of destinations and their secrets.
func (f *Farm) operator(c FarmConfig) (list, secrets string, err error) {
	var b strings.Builder
	roots := `roots: "` + strings.ReplaceAll(string(f.Authority.PEM), "\n", `\n`) + `"`
	for _, s := range f.Servers {
		for origin, suffix := range map[string]string{"node": "", "sandbox": "-sandbox"} {
			entry := func(kind string, port int, more string) {
				fmt.Fprintf(&b, "- name: %s-%s%s\n  origin: %s\n  %s: {address: \"%s:%d\"%s}\n", kind, s.Name, suffix,
					origin, kind, s.Address, port, more)
				if origin == "node" {
					fmt.Fprintf(&b, "  unused: %d\n", farmUnused)
				}
			}
			session := fmt.Sprintf(", user: %s, credentialsSecret: %s", FarmUser, farmSecret)
			entry("tcp", EchoPort, "")
			entry("tls", EchoTLSPort, ", "+roots)
			entry("postgres", PostgresPort, session+", database: "+FarmDatabase+", tls: {"+roots+"}")
			entry("redis", FarmRedisPort, session)
		}
	}
	b.WriteString(strings.ReplaceAll(c.Destinations, FarmRoots, roots))
	secrets, list = filepath.Join(f.c.WorkDir, "secrets"), filepath.Join(f.c.WorkDir, "stores.yaml")
	err = errors.Join(os.MkdirAll(secrets, 0o700), os.WriteFile(list, []byte(b.String()), 0o600))
	passwords := map[string]string{farmSecret: f.Password}
	for name, password := range c.Secrets {
		passwords[name] = password
	}
	for name, password := range passwords {
		err = errors.Join(err, os.WriteFile(filepath.Join(secrets, name), []byte("password = "+password+"\n"), 0o600))
	}
	return list, secrets, err
}

// farmUnused is more than any part of a benchmark has functions for.
const farmUnused = 50

func farmNamespace(name string, i int) string { return fmt.Sprintf("%s-farm%d", name, i) }

// start starts the servers of one distance.
func (f *Farm) start(ctx context.Context, i int, s *Servers, settings []string) (err error) {
	node := f.Node(Edge)
	namespace := node.Namespace
	if s.RTT > 0 {
		namespace = filepath.Join("/run/netns", farmNamespace(f.c.Name, i))
		if err := f.connect(ctx, i, s, namespace); err != nil {
			return err
		}
	}
	if err := nsthread.Run(namespace, up("lo", host(s.Address))); err != nil {
		return err
	}
	log := func(server string) string { return filepath.Join(f.LogDir(), server+"-"+s.Name+".log") }
	at := func(port int) netip.AddrPort { return netip.AddrPortFrom(s.Address, uint16(port)) }
	s.Postgres, err = StartPostgres(ctx, PostgresConfig{LogFile: log("postgres"), Namespace: namespace,
		Address:   at(PostgresPort),
		Authority: f.Authority, User: FarmUser, Password: f.Password, Database: FarmDatabase, Settings: settings})
	if err != nil {
		return err
	}
	s.Redis, err = StartRedis(ctx, RedisConfig{DataDir: filepath.Join(f.c.WorkDir, "redis", s.Name),
		LogFile: log("redis"), Namespace: namespace,
		Address: at(FarmRedisPort), User: FarmUser, Password: f.Password})
	if err != nil {
		return err
	}
	if s.PgBouncer, err = StartPgBouncer(ctx, log("pgbouncer"), node.Namespace, s.Postgres); err != nil {
		return err
	}
	pair, err := f.Authority.Issue(pki.Party{User: "echo", Addresses: []netip.Addr{s.Address}})
	if err != nil {
		return err
	}
	for port, secured := range map[int]*pki.Pair{EchoPort: nil, EchoTLSPort: &pair} {
		e, err := startEcho(namespace, at(port), secured)
		if err != nil {
			return err
		}
		s.echoes = append(s.echoes, e)
	}
	return nil
}

// connect makes a distance's namespace, and the link to it.
func (f *Farm) connect(ctx context.Context, i int, s *Servers, namespace string) error {
	node := f.Node(Edge)
	if err := newNamespace(farmNamespace(f.c.Name, i)); err != nil {
		return err
	}
	near, far, device := f.at(farmLinks+i, 1), f.at(farmLinks+i, 2), fmt.Sprintf("wan%d", i)
	link := Link(f.c.BinDir, linkemu.Config{Delay: s.RTT / 2,
		A: linkemu.End{Namespace: node.Namespace, Device: device, Address: near.String() + "/30"},
		B: linkemu.End{Namespace: namespace, Device: device, Address: far.String() + "/30"}})
	link.Name += "-" + s.Name
	if err := f.links.Start(ctx, link); err != nil {
		return err
	}
	return errors.Join(
		nsthread.Run(namespace, func() error { return routes(device, near, host(node.Address), node.PodSubnet) }),
		nsthread.Run(node.Namespace, func() error { return routes(device, far, host(s.Address)) }))
}

// stepAside has what stands for other machines take the cores that the node leaves.
func (f *Farm) stepAside() error {
	all := f.links.Status()
	for _, s := range f.Servers {
		all = append(append(all, s.Postgres.group.Status()...), s.Redis.group.Status()...)
	}
	for _, p := range all {
		if err := stepAside(p); err != nil {
			return fmt.Errorf("lowering the priority of %s: %w", p.Name, err)
		}
	}
	return nil
}

// sweep removes namespaces, also those that a farm left that was killed.
func (f *Farm) sweep() error {
	for i := range f.Servers {
		if err := netns.DeleteNamed(farmNamespace(f.c.Name, i)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing a network namespace: %w", err)
		}
	}
	return nil
}

// Close ends everything and waits for it. It goes on after an error.
func (f *Farm) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, s := range f.Servers {
		for _, e := range s.echoes {
			e.close()
		}
		if s.PgBouncer != nil {
			s.PgBouncer.Close(ctx)
		}
		if s.Redis != nil {
			s.Redis.Close(ctx)
		}
		if s.Postgres != nil {
			s.Postgres.Close(ctx)
		}
	}
	f.links.Stop(ctx)
	return errors.Join(f.Bed.Close(), f.sweep())
}
