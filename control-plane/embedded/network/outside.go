package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

const (
	// iptablesWait is how many seconds iptables waits for its lock, which other
	// programs hold for milliseconds.
	iptablesWait = 5
	// iptablesBusy is iptables' exit status when it did not get that lock.
	iptablesBusy = 4
	// forwardingFile shows and sets the network namespace of the thread that opens it.
	forwardingFile = "/proc/sys/net/ipv4/ip_forward"
	// Every bridge of ours has an alias. One of them notes that the host's ip_forward
	// was 0: the kernel keeps the note exactly as long as the bridge, also after we
	// were killed.
	plainAlias      = "headstart"
	forwardingAlias = "headstart: ip_forward was 0"
)

// rule is one line of the host's packet filter.
type rule struct {
	table string
	args  []string
}

func comment(name string) string { return "headstart-network-" + name }

// rules let nodes talk to the world under the host's address. The two of FORWARD are
// for hosts whose default is to drop, as Docker leaves it.
func (p *plan) rules() []rule {
	subnet, marked := p.subnet.String(), []string{"-m", "comment", "--comment", comment(p.name)}
	with := func(args []string, target string) []string {
		return append(append(args, marked...), "-j", target)
	}
	return []rule{
		{"nat", with([]string{"-A", "POSTROUTING", "-s", subnet, "!", "-d", subnet}, "MASQUERADE")},
		{"filter", with([]string{"-I", "FORWARD", "-i", p.bridge, "-s", subnet}, "ACCEPT")},
		{"filter", with([]string{"-I", "FORWARD", "-o", p.bridge, "-d", subnet, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED"}, "ACCEPT")},
	}
}

// reachOutside lets the nodes reach beyond this machine. It returns a warning where the
// host cannot do that; the nodes still work without.
func (p *plan) reachOutside(ctx context.Context) string {
	if err := p.addRules(ctx); err != nil {
		return fmt.Sprintf("nodes reach each other and this machine only: %v", err)
	}
	if err := p.enableForwarding(); err != nil {
		return fmt.Sprintf("nodes reach each other and this machine only: %v", err)
	}
	return ""
}

func (p *plan) addRules(ctx context.Context) error {
	for _, r := range p.rules() {
		if _, err := iptables(ctx, r.table, r.args...); err != nil {
			return fmt.Errorf("adding a packet filter rule: %w", err)
		}
	}
	return nil
}

// removeRules deletes all rules of the instance, whatever their subnet was.
func removeRules(ctx context.Context, name string) error {
	for table, chain := range map[string]string{"nat": "POSTROUTING", "filter": "FORWARD"} {
		listing, err := iptables(ctx, table, "-S", chain)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() != iptablesBusy || errors.Is(err, exec.ErrNotFound) {
			continue // a host where iptables does not work has no rule of ours
		}
		if err != nil {
			return fmt.Errorf("listing packet filter rules: %w", err)
		}
		for _, deletion := range deletions(listing, comment(name)) {
			if _, err := iptables(ctx, table, deletion...); err != nil {
				return fmt.Errorf("deleting a packet filter rule: %w", err)
			}
		}
	}
	return nil
}

// deletions turns the lines of an iptables -S listing that carry our comment into the
// arguments that delete them. Our rules have no argument with a space in it.
func deletions(listing, comment string) [][]string {
	var all [][]string
	for line := range strings.Lines(listing) {
		args := strings.Fields(line)
		ours := false
		for i, a := range args {
			args[i] = strings.Trim(a, `"`)
			ours = ours || i > 0 && args[i-1] == "--comment" && args[i] == comment
		}
		if ours && args[0] == "-A" {
			args[0] = "-D"
			all = append(all, args)
		}
	}
	return all
}

func iptables(ctx context.Context, table string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "iptables", append([]string{"-w", strconv.Itoa(iptablesWait), "-t", table}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && stderr.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return string(out), err
}

// enableForwarding lets the host route, and notes on the bridge if it did not before.
func (p *plan) enableForwarding() error {
	now, err := os.ReadFile(forwardingFile)
	if err != nil {
		return fmt.Errorf("reading ip_forward: %w", err)
	}
	if strings.TrimSpace(string(now)) != "0" {
		return nil
	}
	bridge, err := netlink.LinkByName(p.bridge)
	if err != nil {
		return fmt.Errorf("finding bridge: %w", err)
	}
	if err := netlink.LinkSetAlias(bridge, forwardingAlias); err != nil {
		return fmt.Errorf("noting on the bridge that ip_forward was 0: %w", err)
	}
	return setForwarding("1")
}

// restoreForwarding puts the host's ip_forward back if own, our bridge, has the note.
// If another instance still runs, it forwards too, and inherits the note.
func restoreForwarding(own netlink.Link, all []netlink.Link) error {
	if own.Attrs().Alias != forwardingAlias {
		return nil
	}
	for _, other := range all {
		if other.Attrs().Alias != plainAlias {
			continue
		}
		if err := netlink.LinkSetAlias(other, forwardingAlias); err != nil {
			return fmt.Errorf("passing on that ip_forward was 0: %w", err)
		}
		return nil
	}
	return setForwarding("0")
}

func setForwarding(value string) error {
	if err := os.WriteFile(forwardingFile, []byte(value), 0o644); err != nil {
		return fmt.Errorf("setting ip_forward to %s: %w", value, err)
	}
	return nil
}
