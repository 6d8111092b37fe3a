package main

import (
	"context"
	"maps"

	"github.com/headstart-mesh/headstart/e2e/cluster/faults"
)

// faults counts the requests that are lost while parts fail.
func (b *bench) faults(ctx context.Context) error {
	result, err := faults.Run(ctx, b.World, progress)
	maps.Copy(b.summary, result.Summary())
	return err
}
