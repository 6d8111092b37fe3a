package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

const (
	// quietFor is how long a part may take to start without a word: most take less.
	quietFor = time.Second
	// wordEvery is how often is said that a part still starts, so that nobody takes it for stuck.
	wordEvery = 3 * time.Second
)

// Status is what the supervisor knows of the processes.
func (p *Platform) Status() []process.Status {
	return slices.Concat(p.containerds.Status(), p.daemons.Status(), p.gateways.Status())
}

// start starts a part, and tells of one that takes long; why is what it does meanwhile.
func (p *Platform) start(ctx context.Context, g *process.Group, why string, spec process.Spec) error {
	return announced(p.o.Progress, spec.Name+why, func() error { return g.Start(ctx, spec) })
}

// announced calls start, and tells of it if that takes long.
func announced(progress func(string), name string, start func() error) error {
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- start() }()
	for next := quietFor; ; next = wordEvery {
		select {
		case err := <-ended:
			if took := time.Since(began); err == nil && took >= quietFor {
				progress(fmt.Sprintf("%s: ready after %.1f s", name, took.Seconds()))
			}
			return err
		case <-time.After(next):
			progress(fmt.Sprintf("waiting for %s (%.0f s)", name, time.Since(began).Seconds()))
		}
	}
}

// writeParts writes how the processes are to where the control plane reads it: they are the
// supervisor's to know, and the operator asks the control plane.
func (p *Platform) writeParts() {
	p.partsMu.Lock()
	defer p.partsMu.Unlock()
	parts := []admin.Part{}
	for _, s := range p.Status() {
		parts = append(parts, admin.Part{Name: s.Name, State: string(s.State), Since: s.Since, Restarts: s.Restarts, LastExit: s.LastExit, ExitedAt: s.ExitedAt})
	}
	b, err := json.Marshal(parts)
	if err == nil {
		err = renameio.WriteFile(p.run(admin.PartsFile), b, 0o600)
	}
	if err != nil {
		p.o.Progress(fmt.Sprintf("`headstart status` cannot show the platform's processes: %v", err))
	}
}
