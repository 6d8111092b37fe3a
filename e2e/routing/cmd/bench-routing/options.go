package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/routing/bed"
	"github.com/headstart-mesh/headstart/e2e/routing/gateways"
)

var (
	// paths are the paper's between edge and cloud (section III.A).
	paths = []bed.Path{
		{RTT: 50 * time.Millisecond, Jitter: 10 * time.Millisecond},
		{RTT: 70 * time.Millisecond, Jitter: 10 * time.Millisecond},
		{RTT: 100 * time.Millisecond, Jitter: 20 * time.Millisecond},
	}
	// users on each side, from the paper's least to its most. The edge has room for the 5
	// and the 15: it works on 250 requests per second.
	users = []int{5, 15, 30, 50}
)

func (o options) chosenVariants() ([]gateways.Variant, error) {
	names, err := result.Choose(variantNames(), o.variants)
	if err != nil {
		return nil, fmt.Errorf("-variants: %w", err)
	}
	return slices.DeleteFunc(variants(), func(v gateways.Variant) bool { return !slices.Contains(names, v.Name()) }), nil
}

func (o options) chosenUsers() ([]int, error) { return numbers("-users", o.users, users) }

func (o options) chosenPaths() (chosen []bed.Path, err error) {
	wanted, err := numbers("-rtts", o.rtts, nil)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if len(wanted) == 0 || slices.Contains(wanted, int(p.RTT.Milliseconds())) {
			chosen = append(chosen, p)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-rtts: %q has none of the paper's", o.rtts)
	}
	return chosen, nil
}

// numbers are those of a flag, or otherwise if it is empty.
func numbers(flag, value string, otherwise []int) ([]int, error) {
	if value == "" {
		return otherwise, nil
	}
	var all []int
	for s := range strings.SplitSeq(value, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%s: %q is not a number above 0", flag, s)
		}
		all = append(all, n)
	}
	return all, nil
}
