package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func runCommand(c *cli) *cobra.Command {
	var file manifestFile
	cmd := &cobra.Command{
		Use: "run -f FILE", Short: "Run a job once, with its input in place, and wait for its end", Args: byFlag,
		Long: `Run the job of a file with one Job manifest (batch/v1), whose pod template may name
an input by headstart.dev/input. Its container starts when the input is there.
Ctrl-C ends it. The exit status is 1 unless the job's program ends with 0.
docs/reference/jobs.md lists the fields of a manifest.`,
		Example: "  headstart run -f job.yaml\n  cat job.yaml | headstart run -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := file.open(cmd)
			if err != nil {
				return err
			}
			defer in.Close()
			o, err := c.client().RunJob(cmd.Context(), in)
			if err != nil && cmd.Context().Err() != nil {
				return errors.New("interrupted; the job is ended, with 30 s of grace")
			}
			if err != nil {
				return err
			}
			return c.printOutcome(cmd.OutOrStdout(), o)
		},
	}
	file.flag(cmd)
	c.outputFlag(cmd)
	return cmd
}

// manifestFile is the file that a command's -f names.
type manifestFile string

func (f *manifestFile) String() string { return string(*f) }
func (f *manifestFile) Type() string   { return "string" }

// Set implements pflag.Value.
func (f *manifestFile) Set(s string) error {
	if *f != "" {
		return errors.New("there is one already; put all into one file, with a line --- between them")
	}
	*f = manifestFile(s)
	return nil
}

func (f *manifestFile) flag(cmd *cobra.Command) {
	cmd.Flags().VarP(f, "filename", "f", "manifest, - for standard input")
	_ = cmd.MarkFlagRequired("filename") // it is defined above
}

func (f *manifestFile) open(cmd *cobra.Command) (io.ReadCloser, error) {
	if *f == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	return os.Open(string(*f))
}

// byFlag refuses arguments of a command that takes a manifest.
func byFlag(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected %q; -f names the manifest: %s -f %s", args[0], cmd.CommandPath(), args[0])
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
	if o.Reason == admin.JobFailed { // its own words are in its log
		o.Trace += ", headstart logs " + o.Job
	}
	at := ""
	if o.Field != "" {
		at = " (" + o.Field + ")"
	}
	words := ""
	for _, line := range o.Log {
		words += "\n  │ " + nodeapi.Printable(line)
	}
	return fmt.Errorf(
		"job %s failed on %s: %s: %s%s; headstart trace %s%s", o.Job, o.Node, o.Reason, o.Message, at, o.Trace, words,
	)
}
