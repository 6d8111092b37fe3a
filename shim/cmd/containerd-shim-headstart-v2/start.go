package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// maxInput bounds what is read from containerd, in bytes: the same as in containerd's
// own shims.
const maxInput = 10 << 20

// arguments is what containerd gives on the command line.
type arguments struct {
	id, namespace, address string
	action                 string
	debug, version         bool
}

// parse reads the arguments that are looked at here and passes over the others: RunShim
// has the last word on them.
func parse(args []string) arguments {
	var a arguments
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&a.id, "id", "", "")
	flags.StringVar(&a.namespace, "namespace", "", "")
	flags.StringVar(&a.address, "address", "", "")
	flags.BoolVar(&a.debug, "debug", false, "")
	flags.BoolVar(&a.version, "v", false, "")
	flags.BoolVar(&a.version, "version", false, "")
	flags.Bool("info", false, "")
	for _, other := range []string{"socket", "debug-socket", "bundle", "publish-binary"} {
		flags.String(other, "", "")
	}
	if err := flags.Parse(args); err != nil {
		return arguments{} // RunShim says what is wrong with them
	}
	a.action = flags.Arg(0)
	return a
}

// start starts the shim's server if a containerd before 2.3 asks for it, and returns
// true. For a newer one, which speaks the bootstrap protocol, it returns false with
// stdin as it was: RunShim does the rest.
func start(m shim.Shim, a arguments) (bool, error) {
	input, err := io.ReadAll(io.LimitReader(os.Stdin, maxInput))
	if err != nil {
		return false, fmt.Errorf("reading containerd's parameters: %w", err)
	}
	if bootstrap(input, a) {
		os.Stdin, err = replay(input)
		return false, err
	}
	params, err := legacyParams(input, a)
	if err != nil {
		return false, err
	}
	result, err := m.Start(namespaces.WithNamespace(context.Background(), a.namespace), params)
	if err != nil {
		return false, fmt.Errorf("starting the shim: %w", err)
	}
	// The bundle is the working directory. A restarted containerd finds its shims by
	// this file.
	if err := os.WriteFile("address", []byte(result.Address), 0o600); err != nil {
		return false, fmt.Errorf("noting the shim's address: %w", err)
	}
	if _, err := os.Stdout.WriteString(result.Address); err != nil {
		return false, fmt.Errorf("answering containerd: %w", err)
	}
	return true, nil
}

// bootstrap tells whether input is of the bootstrap protocol. Old runtime options may
// parse as such too, but do not name the sandbox.
func bootstrap(input []byte, a arguments) bool {
	var p bootapi.BootstrapParams
	return len(input) > 0 && proto.Unmarshal(input, &p) == nil && p.GetInstanceID() == a.id && p.GetNamespace() == a.namespace
}

// legacyParams says in terms of the bootstrap protocol what an old containerd says by
// arguments, environment, and runtime options on stdin.
func legacyParams(input []byte, a arguments) (*bootapi.BootstrapParams, error) {
	if a.id == "" || a.namespace == "" {
		return nil, errors.New("-id and -namespace are needed: this program is started by containerd")
	}
	p := &bootapi.BootstrapParams{
		InstanceID: a.id, Namespace: a.namespace,
		ContainerdGrpcAddress: a.address, ContainerdTtrpcAddress: os.Getenv("TTRPC_ADDRESS"),
	}
	if a.debug {
		p.LogLevel = bootapi.LogLevel_LOG_LEVEL_DEBUG
	}
	if len(input) > 0 {
		var options anypb.Any
		if err := proto.Unmarshal(input, &options); err != nil {
			return nil, fmt.Errorf("reading the runtime's options: %w", err)
		}
		p.Extensions = []*bootapi.Extension{{Value: &options}}
	}
	return p, nil
}

// replay returns a file to read input from once more.
func replay(input []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("bootstrap", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file for containerd's parameters: %w", err)
	}
	f := os.NewFile(uintptr(fd), "bootstrap")
	if _, err := f.Write(input); err != nil {
		return nil, errors.Join(fmt.Errorf("keeping containerd's parameters: %w", err), f.Close())
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("keeping containerd's parameters: %w", err), f.Close())
	}
	return f, nil
}
