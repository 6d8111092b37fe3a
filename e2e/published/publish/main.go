// Command publish takes the results of demo and benchmarks into the documentation: `make publish`
// runs it, and then has the tables made from them.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/headstart-mesh/headstart/e2e/published"
)

func main() {
	from := flag.String("from", "out", "directory of demo/summary.json and bench/*.json")
	to := flag.String("to", "docs/results", "directory of what is published")
	flag.Parse()
	taken, err := published.Take(*from, *to)
	if err != nil {
		fmt.Fprintln(os.Stderr, "publish:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "· "+strings.Join(taken, ", "))
}
