package main

import "github.com/spf13/cobra"

// localCommands work on the platform of this machine only.
func localCommands(c *cli) []*cobra.Command {
	return []*cobra.Command{upCommand(c), applyCommand(c), deleteCommand(c), runCommand(c), imageCommand(c)}
}

// platformHere is what the help says of a platform on this machine.
const platformHere = `
On this machine alone, as root:

  headstart up                     start the embedded platform
  headstart image import fn.tar    import a function's image, if no registry has it
  headstart apply -f service.yaml  deploy functions (Knative Service manifests)
  headstart run -f job.yaml        run a job once (a Job manifest)

On either:
`
