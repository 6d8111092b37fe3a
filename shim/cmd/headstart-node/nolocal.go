//go:build kubernetes

package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// Images are to be built with the tag kubernetes: containerd's client, which only the local
// platform needs, is a tenth of the daemon's memory.
var errNoLocal = errors.New("--platform " + platformLocal + ": this build is for " + platformKubernetes + " alone")

func localParty(config) (party, error) { return party{}, errNoLocal }

func openLocal(context.Context, config, *node, string, prometheus.Registerer, *slog.Logger) (*platform, error) {
	return nil, errNoLocal
}
