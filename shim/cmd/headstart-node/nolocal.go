//go:build kubernetes

package main

import (
	"context"
	"errors"
)

// Images are to be built with the tag kubernetes: containerd's client, which only the local
// platform needs, is a tenth of the daemon's memory.
var errNoLocal = errors.New("--platform " + platformLocal + ": this build is for " + platformKubernetes + " alone")

func localParty(config) (party, error) { return party{}, errNoLocal }

func openLocal(context.Context, config, below) (*platform, error) { return nil, errNoLocal }
