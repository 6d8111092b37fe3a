package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
)

func runCommand(c *cli) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "run -f FILE", Short: "Run a job once, with its input in place, and wait for its end", Args: cobra.NoArgs,
		Long: `Run the job of a file with one Job manifest (batch/v1), whose pod template may name
an input by headstart.dev/input. Its container starts when the input is there.
Ctrl-C ends it. The exit status is 1 unless the job's program ends with 0.
docs/reference/jobs.md lists the fields of a manifest.`,
		Example: "  headstart run -f job.yaml\n  cat job.yaml | headstart run -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := openManifest(cmd, file)
			if err != nil {
				return err
			}
			defer in.Close()
			o, err := c.client().RunJob(cmd.Context(), in)
			if err != nil {
				return err
			}
			return c.printOutcome(cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "manifest, - for standard input")
	_ = cmd.MarkFlagRequired("filename") // it is defined above
	c.outputFlag(cmd)
	return cmd
}

// openManifest opens the file that a command names.
func openManifest(cmd *cobra.Command, file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	return os.Open(file)
}

// printOutcome returns an error for a job that did not succeed, once its outcome is printed.
func (c *cli) printOutcome(out io.Writer, o admin.JobOutcome) error {
	var err error
	if c.output == jsonOutput {
		err = printJSON(out, o)
	} else if o.Reason == admin.Succeeded {
		_, err = fmt.Fprintf(out, "%s succeeded on %s; headstart trace %s\n", o.Job, o.Node, o.Trace)
	}
	if err != nil || o.Reason == admin.Succeeded {
		return err
	}
	at := ""
	if o.Field != "" {
		at = " (" + o.Field + ")"
	}
	return fmt.Errorf("job %s failed on %s: %s: %s%s; headstart trace %s", o.Job, o.Node, o.Reason, o.Message, at, o.Trace)
}
