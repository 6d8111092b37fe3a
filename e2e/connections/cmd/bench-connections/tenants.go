package main

import (
	"context"
	"path/filepath"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/connections"
	"github.com/headstart-mesh/headstart/e2e/connections/tenants"
	"github.com/headstart-mesh/headstart/e2e/result"
)

// handoversShare is how many sessions are opened for each repetition: 5,000 for 100.
const handoversShare = 50

// tenants counts what many tenants see of each other, on a bed of its own.
func (b *bench) tenants(ctx context.Context, part *connections.Part) error {
	c, err := tenants.Run(ctx, tenants.Config{BinDir: b.Bin, WorkDir: filepath.Join(b.Out, "connections", "tenants"),
		Handovers: handoversShare * b.Repetitions, Progress: result.Progress})
	if err != nil {
		return err
	}
	for name, n := range map[string]int{connections.CrossTenant: c.CrossTenant, connections.Reused: c.Reused,
		connections.Leaks:          c.Leaks,
		connections.BudgetExceeded: c.Over, connections.SessionsLost: c.Lost} {
		part.Figures[name] = float64(n)
	}
	part.Notes = append(part.Notes, c.Said...)
	part.Points = []connections.Point{{Point: cache.Point{Case: "sessions of 20 tenants", Values: []cache.Value{
		{Name: "opened", Value: float64(c.Handovers)}, {Name: "had waited", Value: float64(c.Waited)},
		{Name: "failed", Value: float64(c.Failed)}}}}}
	return nil
}
