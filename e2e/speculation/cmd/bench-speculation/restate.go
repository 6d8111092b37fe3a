package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/server"

	"github.com/headstart-mesh/headstart/e2e/speculation"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// The service in which Restate has the apps' steps, and its handler.
const restateService, restateHandler = "chain", "run"

// restateStarts bounds how long Restate's server takes to start, and to end.
const restateStarts, restateEnds = 30 * time.Second, 10 * time.Second

// engine is a server of Restate, an engine whose steps are durable, with its own defaults, and a service for it in this process.
type engine struct {
	ingress string
	end     context.CancelFunc
	ended   sync.WaitGroup
}

// restateRun is what a run is asked.
type restateRun struct {
	App  speculation.App
	Miss string
}

// startRestate starts the engine. Its service makes the same requests as a client without workflows, each as a step of a run.
func (b *bench) startRestate(ctx context.Context) (_ *engine, err error) {
	var at [4]string
	for i := range at {
		if at[i], err = freeAddress(); err != nil {
			return nil, err
		}
	}
	ingress, admin, node, service := at[0], at[1], at[2], at[3]
	ctx, end := context.WithCancel(ctx)
	e := &engine{ingress: "http://" + ingress, end: end}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	log, err := os.Create(filepath.Join(b.bed.LogDir(), "restate.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(b.Bin, "restate-server"), "--base-dir", filepath.Join(b.config.WorkDir, "restate"))
	cmd.Env = append(os.Environ(), "RESTATE_INGRESS__BIND_ADDRESS="+ingress, "RESTATE_ADMIN__BIND_ADDRESS="+admin, "RESTATE_BIND_ADDRESS="+node)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = restateEnds
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting Restate, which e2e/speculation/setup.sh installs: %w", err)
	}
	e.ended.Go(func() { _ = cmd.Wait() })
	run := restate.NewServiceHandler(func(ctx restate.Context, r restateRun) (restate.Void, error) {
		return restate.Void{}, r.App.Walk(func(name string, body map[string]any) (any, error) {
			return restate.Run(ctx, func(ctx restate.RunContext) (any, error) { return b.step(ctx, name, r.Miss, body) })
		})
	})
	served := server.NewRestate().WithLogger(slog.DiscardHandler, true).Bind(restate.NewService(restateService).Handler(restateHandler, run))
	e.ended.Go(func() { _ = served.Start(ctx, service) }) // who cannot reach it says so
	return e, testbed.Poll(ctx, restateStarts, func(ctx context.Context) error {
		return post(ctx, "http://"+admin+"/deployments", map[string]any{"uri": "http://" + service, "force": true})
	})
}

// run has an app's functions called.
func (e *engine) run(ctx context.Context, app speculation.App, miss string) error {
	return post(ctx, e.ingress+"/"+restateService+"/"+restateHandler, restateRun{app, miss})
}

func (e *engine) close() {
	e.end()
	e.ended.Wait()
}

// post sends something as JSON, and reads the answer.
func post(ctx context.Context, url string, what any) error {
	b, err := json.Marshal(what)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s answers %d: %.500s", url, resp.StatusCode, said)
	}
	return err
}

// freeAddress is one of this machine's at which nobody listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), errors.Join(l.Close())
}
