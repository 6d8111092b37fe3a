package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/pkg/shim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headstart-mesh/headstart/shim/runtime"
)

// adapter is runc's shim, for a runtime whose options containerd may send in another form
// than runc's.
type adapter struct{ shim.Shim }

// Start starts the shim's server.
func (a adapter) Start(ctx context.Context, p *bootapi.BootstrapParams) (*bootapi.BootstrapResult, error) {
	for _, e := range p.GetExtensions() {
		if !runtime.GenericOptions(e.GetValue()) {
			continue
		}
		o, err := convert(e.GetValue())
		if err != nil {
			return nil, err
		}
		e.Value = o
	}
	return a.Shim.Start(ctx, p)
}

// Stop cleans up after a shim that is dead, with its socket, which nobody else removes.
func (a adapter) Stop(ctx context.Context, id string) (shim.StopStatus, error) {
	// Before containerd removes the bundle, the working directory, with all that is seen there.
	unpinned := runtime.CleanUp(runtime.Kernel{}, ".")
	status, err := a.Shim.Stop(ctx, id)
	if err := errors.Join(err, unpinned); err != nil {
		return status, err
	}
	// A pod's shim may live on without one of its containers.
	if address := deadAddress(); address != "" && !shim.CanConnect(address) {
		if err := shim.RemoveSocket(address); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return status, fmt.Errorf("removing the dead shim's socket: %w", err)
		}
	}
	return status, nil
}

// deadAddress is what the bundle, the working directory, says of its shim: start has written it
// for a containerd before 2.3, and newer ones write it themselves.
func deadAddress() string {
	if address, err := shim.ReadAddress("address"); err == nil {
		return address
	}
	text, err := os.ReadFile("bootstrap.json")
	if err != nil {
		return "" // it never started
	}
	var params struct {
		Address string `json:"address"`
	}
	_ = json.Unmarshal(text, &params) // half written: its shim never started
	return params.Address
}

// Info tells of runc and its features; from them containerd knows whether pods of this
// runtime may have user namespaces.
func (a adapter) Info(ctx context.Context, options io.Reader) (*types.RuntimeInfo, error) {
	sent, err := io.ReadAll(io.LimitReader(options, maxInput))
	if err != nil {
		return nil, fmt.Errorf("reading the runtime's options: %w", err)
	}
	if len(sent) > 0 {
		if sent, err = convertBytes(sent); err != nil {
			return nil, err
		}
	}
	return a.Shim.Info(ctx, bytes.NewReader(sent))
}

func convertBytes(sent []byte) ([]byte, error) {
	var options anypb.Any
	if err := proto.Unmarshal(sent, &options); err != nil {
		return nil, fmt.Errorf("reading the runtime's options: %w", err)
	}
	o, err := convert(&options)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(o)
}

func convert(sent *anypb.Any) (*anypb.Any, error) {
	o, err := runtime.RuncOptions(sent, false)
	if err != nil {
		return nil, err
	}
	a, err := anypb.New(o)
	if err != nil {
		return nil, fmt.Errorf("passing the runtime's options on: %w", err)
	}
	return a, nil
}
