//go:build cluster

package journey

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headstart-mesh/headstart/e2e/cluster"
	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// checkCommand is the last of the README's commands: it passes when all of the installation has settled.
const checkCommand = "kubectl headstart check"

// installByThePage installs a release by the README's commands, as they are there.
func (j *journey) installByThePage(release string) {
	j.bare()
	commands := j.commands("README.md", "## On your cluster")
	if len(commands) > commandsMost || commands[len(commands)-1] != checkCommand {
		j.Fatalf("the README installs by %q", commands)
	}
	values, err := j.Values(j.Context(), "default-s3")
	if err != nil {
		j.Fatal(err)
	}
	for name, content := range map[string]string{"credentials": j.Cloud.S3.Secret.File(), "values.yaml": values} {
		if err := os.WriteFile(filepath.Join(release, name), []byte(content), 0o600); err != nil {
			j.Fatal(err)
		}
	}
	for _, prepared := range [][]string{
		{"cp", j.Source("e2e/cluster/mesh/vanilla.yaml"), "your-own.yaml"},
		{"sh", "-c", "tar xzf headstart_*_linux_*.tar.gz headstart && ln -sf headstart kubectl-headstart"},
	} {
		if err := j.in(release, prepared...); err != nil {
			j.Fatal(err)
		}
	}
	for _, command := range commands[:len(commands)-1] {
		j.Log("$ ", command)
		if err := j.in(release, "sh", "-c", command); err != nil {
			j.Fatal(err)
		}
	}
	// The registry has the same chart.
	pulled := "rm -rf pulled && mkdir pulled && helm pull oci://" + cluster.Registry + "/headstart-mesh/charts/headstart --version " + strings.TrimPrefix(released, "v") +
		" --plain-http --destination pulled && cmp pulled/headstart-*.tgz headstart-*.tgz"
	if err := j.in(release, "sh", "-c", pulled); err != nil {
		j.Error(err)
	}
	err = testbed.Poll(j.Context(), settleTimeout, func(context.Context) error { return j.in(release, "sh", "-c", checkCommand) })
	if err == nil {
		err = j.in(release, "sh", "-c", "helm test headstart -n "+world.System+" --timeout "+settleTimeout.String())
	}
	if err != nil {
		j.Error(err)
	}
}

// bare removes what others have left of Headstart.
func (j *journey) bare() {
	_ = j.World.Uninstall(j.Context()) // it may not be there
	if err := j.Tool(j.Context(), nil, "kubectl", "delete", "namespace", world.System, "--ignore-not-found", "--timeout", settleTimeout.String()); err != nil {
		j.Fatal(err)
	}
}

// commands are those of the first block of a page's section.
func (j *journey) commands(page, heading string) (commands []string) {
	text, err := os.ReadFile(j.Source(page))
	if err != nil {
		j.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	_, block, begins := strings.Cut(section, "```console\n")
	block, _, ends := strings.Cut(block, "```")
	if !found || !begins || !ends {
		j.Fatalf("%s has no commands below %q", page, heading)
	}
	for line := range strings.Lines(block) {
		command, is := strings.CutPrefix(line, "$ ")
		if !is {
			j.Fatalf("%s has a line that is no command: %s", page, line)
		}
		commands = append(commands, strings.TrimSpace(strings.SplitN(command, "  #", 2)[0]))
	}
	return commands
}

// in runs a command where a user would, who says yes.
func (j *journey) in(dir string, command ...string) error {
	cmd := exec.CommandContext(j.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(strings.Repeat("y\n", commandsMost))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+j.Kubeconfig(), "PATH="+strings.Join([]string{dir, j.Bin(), os.Getenv("PATH")}, ":"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", strings.Join(command, " "), err), errors.New(string(out)))
	}
	return nil
}
