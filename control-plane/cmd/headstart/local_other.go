//go:build !linux

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// platformHere is what the help says of a platform on this machine.
const platformHere = ""

// localCommands say why they are not there: the platform of one machine needs Linux.
func localCommands(*cli) (all []*cobra.Command) {
	for _, name := range []string{"up", "apply", "delete", "run", "image"} {
		all = append(all, &cobra.Command{
			Use: name, Short: "Needs Linux", Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return fmt.Errorf("headstart %s is for the platform of one machine, which needs Linux; this is %s: use a cluster, and kubectl",
					name, runtime.GOOS)
			},
		})
	}
	return all
}
