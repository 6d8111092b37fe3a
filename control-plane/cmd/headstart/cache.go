package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// errCache is the exit status after a problem that has been printed.
var errCache = errors.New("not all nodes did what was asked for")

func cacheCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cache", Short: "Show, pin, drop or verify what nodes keep",
		Long: `Show the objects and volumes that nodes keep, and change what they keep.

A reference names an object. One that ends with a slash names all whose references begin
with it, such as s3://models/llama/ or s3://.`,
		Example: "  headstart cache usage\n  headstart cache list s3://models/ -n media\n  headstart cache pin s3://models/llama/ -n media\n  headstart cache drop s3://models/llama/ --node node-1",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	add := func(verb, short string, least int, print func(io.Writer, []admin.CacheNode) error) {
		use := verb + " [REFERENCE]"
		if least > 0 {
			use = verb + " REFERENCE"
		}
		sub := &cobra.Command{Use: use, Short: short, Args: cobra.RangeArgs(least, 1)}
		var q admin.CacheQuery
		q.Verb = verb
		if verb == "usage" {
			q.Verb = "list"
		}
		sub.RunE = func(cmd *cobra.Command, args []string) error {
			q.Namespace, q.Reference = c.cluster.namespace, strings.Join(args, "")
			return c.cache(cmd, q, print)
		}
		c.cacheFlags(sub, &q)
		cmd.AddCommand(sub)
	}
	add("list", "List objects and volumes", 0, printCache)
	add("usage", "Show how much each namespace has", 0, printUsage)
	add("pin", "Keep objects and volumes whatever needs their room", 1, printCache)
	add("unpin", "Take back a pin", 1, printCache)
	add("drop", "Forget objects, and remove volumes that no pod has", 1, printCache)
	add("verify", "Read objects, and forget those that are damaged", 0, printCache)
	return cmd
}

func warmCommand(c *cli) *cobra.Command {
	var q admin.CacheQuery
	cmd := &cobra.Command{
		Use: "warm FUNCTION|REFERENCE", Short: "Fetch volumes or an object ahead",
		Long: `Have nodes fetch the volumes of a function, or one volume or object by its reference.

A reference that ends with a slash is a volume. It returns when all nodes have it.`,
		Example: "  headstart warm media/chat\n  headstart warm s3://models/llama/ -n media --node node-1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Verb = "warm"
			if strings.Contains(args[0], "://") {
				q.Namespace, q.Reference = cmp.Or(c.cluster.namespace, "default"), args[0]
			} else {
				q.Function = c.functionName(args[0])
			}
			return c.cache(cmd, q, printWarm)
		},
	}
	c.cacheFlags(cmd, &q)
	return cmd
}

func (c *cli) cacheFlags(cmd *cobra.Command, q *admin.CacheQuery) {
	cmd.Flags().StringVar(&q.Store, "store", "", "only this store; for warm the store to fetch from (default: default)")
	cmd.Flags().StringVar(&q.Node, "node", "", "only this node (default: all)")
	c.cluster.flags(cmd)
	c.outputFlag(cmd)
}

// cache asks the nodes, and prints what they say. Its error follows what was printed.
func (c *cli) cache(cmd *cobra.Command, q admin.CacheQuery, print func(io.Writer, []admin.CacheNode) error) error {
	client, err := c.target(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	nodes, err := client.Cache(cmd.Context(), q)
	if err != nil {
		return err
	}
	if c.output == jsonOutput {
		err = printJSON(cmd.OutOrStdout(), nodes)
	} else {
		err = errors.Join(print(cmd.OutOrStdout(), nodes), printCacheProblems(cmd.OutOrStdout(), nodes))
	}
	if err == nil && slices.ContainsFunc(nodes, func(n admin.CacheNode) bool {
		return n.Problem != "" || slices.ContainsFunc(n.Entries, func(e *nodeapi.CacheEntry) bool { return e.GetProblem() != "" })
	}) {
		err = errCache
	}
	return err
}

func printCacheProblems(out io.Writer, nodes []admin.CacheNode) error {
	rows := [][]string{}
	for _, n := range nodes {
		if n.Problem != "" {
			rows = append(rows, []string{n.Node, n.Problem})
		}
	}
	return printTable(out, "", rows, "\nNODE", "PROBLEM")
}

// printCache lists what nodes have.
func printCache(out io.Writer, nodes []admin.CacheNode) error {
	rows := [][]string{}
	for _, n := range nodes {
		for _, e := range n.Entries {
			state := e.GetTier()
			switch {
			case e.GetProblem() != "":
				state = e.GetProblem()
			case e.GetPinned():
				state = strings.TrimPrefix(e.GetTier()+", pinned", ", ")
			}
			kind := "object"
			if e.GetTier() == "volume" {
				kind = fmt.Sprintf("%d %s", e.GetObjects(), plural(int(e.GetObjects()), "file"))
			}
			rows = append(rows, []string{n.Node, cmp.Or(e.GetNamespace(), "(shared)"), e.GetStore(), e.GetReference(), kind, megabytes(e.GetBytes()), fmt.Sprint(e.GetUsers()), state})
		}
	}
	return printTable(out, "Nothing.", rows, "NODE", "NAMESPACE", "STORE", "REFERENCE", "IS", "SIZE", "USERS", "STATE")
}

// printUsage sums up what nodes have, by namespace and tier. Files of volumes are there once for all volumes and
// objects that have them, so volumes are the sum of what their pods see.
func printUsage(out io.Writer, nodes []admin.CacheNode) error {
	type place struct{ node, namespace, tier string }
	type sum struct{ entries, bytes, used, pinned int64 }
	sums := map[place]sum{}
	for _, n := range nodes {
		for _, e := range n.Entries {
			p := place{n.Node, cmp.Or(e.GetNamespace(), "(shared)"), cmp.Or(e.GetTier(), "in use")}
			s := sums[p]
			s.entries++
			s.bytes += e.GetBytes()
			if e.GetUsers() > 0 {
				s.used += e.GetBytes()
			}
			if e.GetPinned() {
				s.pinned += e.GetBytes()
			}
			sums[p] = s
		}
	}
	rows := [][]string{}
	for _, p := range slices.SortedFunc(maps.Keys(sums), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.tier, b.tier))
	}) {
		s := sums[p]
		rows = append(rows, []string{p.node, p.namespace, p.tier, fmt.Sprint(s.entries), megabytes(s.bytes), megabytes(s.used), megabytes(s.pinned)})
	}
	return printTable(out, "Nothing.", rows, "NODE", "NAMESPACE", "TIER", "NUMBER", "SIZE", "IN USE", "PINNED")
}

// printWarm names the nodes that have it.
func printWarm(out io.Writer, nodes []admin.CacheNode) error {
	rows := [][]string{}
	for _, n := range nodes {
		if n.Problem == "" {
			rows = append(rows, []string{n.Node})
		}
	}
	return printTable(out, "No node has it.", rows, "WARM ON")
}

func megabytes(n int64) string { return figure(float64(n)/1e6) + " MB" }
