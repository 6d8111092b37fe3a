package trust

import (
	"fmt"
	"strings"
)

// Page is the part of the threat model that is made of the lists: the attacks, and the gaps.
func Page() string {
	var b strings.Builder
	b.WriteString("| attacker | must not get | tests that try |\n|---|---|---|\n")
	type pair struct {
		role  Role
		asset Asset
	}
	tests := map[pair][]string{}
	var order []pair
	for _, a := range Attacks {
		at := pair{a.Role, a.Asset}
		if tests[at] == nil {
			order = append(order, at)
		}
		on := ""
		if a.Tag == Cluster {
			on = ", on a cluster"
		}
		tests[at] = append(tests[at], fmt.Sprintf("`%s` (`%s`%s)", a.Test, a.Package, on))
	}
	for _, at := range order {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", at.role, at.asset, strings.Join(tests[at], ", "))
	}
	if len(Gaps) == 0 {
		return b.String()
	}
	b.WriteString("\nNot defended yet:\n\n| attacker | gets | how |\n|---|---|---|\n")
	for _, g := range Gaps {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.Role, g.Asset, g.Note)
	}
	return b.String()
}
