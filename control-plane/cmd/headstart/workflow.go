package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// workflowRecord is what has come of a workflow's runs, on all nodes together, as `-o json` has it.
type workflowRecord struct {
	Workflow string `json:"workflow"`
	Runs     int64  `json:"runs"`
	Failed   int64  `json:"failed"`
	stepSums
	Steps []*stepRecord `json:"steps"`
	// Recent are the newest runs of each node, the newest in front.
	Recent []runRecord `json:"recent"`
}

// stepSums are what has come of calls: those whose answer counts and those of them that began before their turn, guesses of answers, and
// calls before their turn that came to nothing, by why.
type stepSums struct {
	Calls        int64            `json:"calls"`
	Ahead        int64            `json:"ahead"`
	Right        int64            `json:"right"`
	Wrong        int64            `json:"wrong"`
	Squashed     map[string]int64 `json:"squashed"`
	SavedSeconds float64          `json:"savedSeconds"`
}

type stepRecord struct {
	Task     string `json:"task"`
	Function string `json:"function"`
	stepSums
}

type runRecord struct {
	Node         string    `json:"node"`
	Request      string    `json:"request"`
	Began        time.Time `json:"began"`
	Seconds      float64   `json:"seconds"`
	SavedSeconds float64   `json:"savedSeconds"`
	Result       string    `json:"result"`
	Path         []runStep `json:"path"`
}

type runStep struct {
	Task  string `json:"task"`
	Ahead bool   `json:"ahead"`
}

func workflowCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "workflow", Short: "Show what comes of workflows' runs, and what runs ahead",
		Long: `Show what has come of workflows' runs since the nodes know their documents: how much
of them ran ahead, what was guessed, and why work before its turn came to nothing.`,
		Example: "  headstart workflow list\n  headstart workflow show shop/checkout\n  headstart workflow runs shop/checkout",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	add := func(use, short, long string, args int, print func(io.Writer, []workflowRecord) error) {
		sub := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.ExactArgs(args)}
		q := admin.CacheQuery{Verb: "workflows"}
		sub.RunE = func(cmd *cobra.Command, args []string) error {
			q.Namespace = c.cluster.namespace
			if len(args) > 0 {
				q.Namespace, q.Reference = "", c.functionName(args[0])
			}
			return c.workflows(cmd, q, print)
		}
		sub.Flags().StringVar(&q.Node, "node", "", "only this node (default: all)")
		c.cluster.flags(sub)
		c.outputFlag(sub)
		cmd.AddCommand(sub)
	}
	add("list", "List workflows and what came of their runs", `List the workflows that nodes have run.

AHEAD is how many of their calls began before their turn, RIGHT how many guesses of
answers were right, SQUASHED how many calls before their turn came to nothing, and SAVED
how long calls had worked when their turn came.`, 0, printWorkflows)
	add("show NAMESPACE/NAME", "Show what came of each of a workflow's calls", `Show what came of each call of a workflow.

A call is SQUASHED, and made again in its turn, if it was guessed wrong; if it failed, or
lost its instance to another request; if its turn came before an instance was free (idle);
if a store held something else in its turn (state); or since the run ended before (end).`, 1, printSteps)
	add("runs NAMESPACE/NAME", "Show a workflow's latest runs", `Show the latest runs of a workflow: the calls that each came by, with * those that began
before their turn. headstart trace shows a run whole, by its request.`, 1, printRuns)
	return cmd
}

// workflows asks the nodes, and prints what they say together.
func (c *cli) workflows(cmd *cobra.Command, q admin.CacheQuery, print func(io.Writer, []workflowRecord) error) error {
	client, err := c.target(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	nodes, err := client.Cache(cmd.Context(), q)
	if err != nil {
		return err
	}
	all := workflowsOf(nodes)
	out := cmd.OutOrStdout()
	if c.output == jsonOutput {
		err = printJSON(out, all)
	} else {
		err = errors.Join(print(out, all), printCacheProblems(out, nodes))
	}
	if err == nil && slices.ContainsFunc(nodes, func(n admin.CacheNode) bool { return n.Problem != "" }) {
		err = errCache
	}
	return err
}

// workflowsOf joins what nodes say.
func workflowsOf(nodes []admin.CacheNode) []workflowRecord {
	byName := map[string]*workflowRecord{}
	for _, n := range nodes {
		for _, e := range n.Entries {
			m := e.GetWorkflow()
			w := byName[m.GetName()]
			if w == nil {
				w = &workflowRecord{Workflow: m.GetName(), stepSums: stepSums{Squashed: map[string]int64{}}}
				byName[m.GetName()] = w
			}
			w.Runs, w.Failed = w.Runs+m.GetRuns(), w.Failed+m.GetFailed()
			for _, s := range m.GetSteps() {
				w.add(s)
				i := slices.IndexFunc(w.Steps, func(known *stepRecord) bool { return known.Task == s.GetTask() })
				if i < 0 {
					i = len(w.Steps)
					w.Steps = append(w.Steps, &stepRecord{Task: s.GetTask(), stepSums: stepSums{Squashed: map[string]int64{}}})
				}
				w.Steps[i].Function = cmp.Or(s.GetFunction(), w.Steps[i].Function)
				w.Steps[i].add(s)
			}
			for _, r := range m.GetRecent() {
				w.Recent = append(w.Recent, runOf(n.Node, r))
			}
		}
	}
	all := []workflowRecord{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		w := byName[name]
		slices.SortFunc(w.Steps, func(a, b *stepRecord) int { return cmp.Compare(a.Task, b.Task) })
		slices.SortStableFunc(w.Recent, func(a, b runRecord) int { return b.Began.Compare(a.Began) })
		all = append(all, *w)
	}
	return all
}

func runOf(node string, m *nodeapi.RunRecord) runRecord {
	r := runRecord{Node: node, Request: m.GetId(), Began: m.GetBegan().AsTime(), Seconds: m.GetTook().AsDuration().Seconds(),
		SavedSeconds: m.GetSaved().AsDuration().Seconds(), Result: cmp.Or(m.GetResult(), "the client has left")}
	for _, s := range m.GetPath() {
		r.Path = append(r.Path, runStep{s.GetTask(), s.GetAhead()})
	}
	return r
}

func (s *stepSums) add(m *nodeapi.StepRecord) {
	s.Calls, s.Ahead = s.Calls+m.GetCalls(), s.Ahead+m.GetAhead()
	s.Right, s.Wrong = s.Right+m.GetRight(), s.Wrong+m.GetWrong()
	for why, n := range m.GetSquashed() {
		s.Squashed[why] += n
	}
	s.SavedSeconds += m.GetSaved().AsDuration().Seconds()
}

// cells are AHEAD, RIGHT, SQUASHED and SAVED.
func (s stepSums) cells() []string {
	var squashed []string
	for _, why := range slices.Sorted(maps.Keys(s.Squashed)) {
		squashed = append(squashed, fmt.Sprintf("%d %s", s.Squashed[why], why))
	}
	return []string{part(s.Ahead, s.Calls), part(s.Right, s.Right+s.Wrong), strings.Join(squashed, ", "), span(s.SavedSeconds)}
}

// part is how many of all there are; empty: there are none at all.
func part(n, all int64) string {
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d", n, all)
}

const noRuns = "No node has run it, or it is no workflow; `headstart status` lists what is deployed."

func printWorkflows(out io.Writer, all []workflowRecord) error {
	rows := [][]string{}
	for _, w := range all {
		rows = append(rows, slices.Concat([]string{w.Workflow, strconv.FormatInt(w.Runs, 10), strconv.FormatInt(w.Failed, 10)}, w.cells()))
	}
	return printTable(out, "No node has run a workflow.", rows, "WORKFLOW", "RUNS", "FAILED", "AHEAD", "RIGHT", "SQUASHED", "SAVED")
}

func printSteps(out io.Writer, all []workflowRecord) error {
	rows := [][]string{}
	for _, w := range all {
		for _, s := range w.Steps {
			rows = append(rows, slices.Concat([]string{s.Task, s.Function}, s.cells()))
		}
	}
	return printTable(out, noRuns, rows, "TASK", "FUNCTION", "AHEAD", "RIGHT", "SQUASHED", "SAVED")
}

func printRuns(out io.Writer, all []workflowRecord) error {
	rows := [][]string{}
	for _, w := range all {
		for _, r := range w.Recent {
			var way []string
			for _, s := range r.Path {
				name := path.Base(s.Task)
				if s.Ahead {
					name += "*"
				}
				way = append(way, name)
			}
			rows = append(rows, []string{r.Began.UTC().Format(time.RFC3339), r.Request, r.Node, span(r.Seconds), span(r.SavedSeconds), r.Result, strings.Join(way, " ")})
		}
	}
	return printTable(out, noRuns, rows, "BEGAN", "REQUEST", "NODE", "TOOK", "SAVED", "RESULT", "PATH")
}
