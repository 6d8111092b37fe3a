package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/advice"
	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/control-plane/history"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// bytesPerMegabit turns Mbit/s into bytes per second.
const bytesPerMegabit = 1e6 / 8

// sinceLeast is a few steps of what Prometheus keeps.
const sinceLeast = 2 * time.Minute

// past is what is looked at of a cluster's past.
type past struct {
	since  model.Duration
	server string
}

func (p *past) flags(cmd *cobra.Command) {
	p.since = model.Duration(7 * 24 * time.Hour)
	cmd.Flags().Var(&p.since, "since", "how far to look back, such as 12h, 7d or 4w")
	cmd.Flags().StringVar(&p.server, "prometheus", "istio-system/prometheus:9090",
		"the cluster's Prometheus: NAMESPACE/SERVICE:PORT, by way of the API server, or its URL")
}

// open returns what Prometheus knows of it.
func (p *past) open(cmd *cobra.Command, k *cluster) (*history.Past, error) {
	if time.Duration(p.since) < sinceLeast {
		return nil, fmt.Errorf("--since: %s is too short: look back for %s at least", p.since, sinceLeast)
	}
	return k.prometheus(cmd.Context(), p.server, time.Duration(p.since))
}

func adviseCommand(c *cli) *cobra.Command {
	var q admin.CacheQuery
	var learned, observed bool
	var of past
	var megabits, worth float64
	cmd := &cobra.Command{
		Use: "advise", Short: "Tell which services would gain, how much, and the annotations for it",
		Long: `Tell which services of a mesh would gain from Headstart, how much, and the annotations
to set.

It looks at what Istio's metrics say of requests and their pauses, and at how long pods
took to start. It changes nothing, and Headstart need not be installed. Of the idle
windows it takes the one with the best balance: replicas that are away while nobody
asks, against clients that wait for a start.

With --learned, propose values of ` + filterapi.AnnotationInput + ` for functions whose
programs read their objects by S3 on the node, and whose annotation
` + filterapi.AnnotationS3Learn + ` is on. RIGHT is how often an object that the template
names was read, of all times it could have been.

With --observed, list what templates name in the requests of functions with the
annotation ` + filterapi.AnnotationMode + `: observe, of which Headstart fetches nothing.
REQUESTS named the input, DISTINCT is how many different references they named, and
LATEST the latest one; -o json has more of them. UNNAMED are requests of the function
that have nothing that a template names. INCOMPLETE are those that would be refused:
something is missing, there twice or not usable. REFUSED are those that name what the
store does not allow.`,
		Example: "  headstart advise -n shop\n  headstart advise --prometheus monitoring/prometheus-k8s:9090\n  headstart advise --learned -n media\n  headstart advise --observed",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Namespace = c.cluster.namespace
			switch {
			case learned:
				q.Verb = "advise"
				return c.cache(cmd, q, printLearned)
			case observed:
				q.Verb = "observed"
				return c.observed(cmd, q)
			}
			if q.Node != "" {
				return errors.New("--node: services are not of a node: it goes with --learned or --observed")
			}
			if !(megabits > 0 && megabits < math.MaxInt32) || !(worth >= 0 && worth < math.MaxInt32) {
				return errors.New("--client-bandwidth is more than 0 Mbit/s, and --worth at least 0 seconds")
			}
			config, err := c.cluster.config()
			if err != nil {
				return fmt.Errorf("services are of a cluster (what nodes have learned or observed, here too, shows --learned or --observed): %w", err)
			}
			reader, err := objects.Connect(config)
			if err != nil {
				return fmt.Errorf("the kubeconfig: %w", err)
			}
			known, err := of.open(cmd, &c.cluster)
			if err != nil {
				return err
			}
			services, err := advice.Look(cmd.Context(), reader, known, advice.Asked{
				Namespace: c.cluster.namespace, Window: known.Window, Bandwidth: megabits * bytesPerMegabit, Worth: worth})
			if err != nil {
				return c.cluster.explainLook(config, err)
			}
			if c.output == jsonOutput {
				return printJSON(cmd.OutOrStdout(), services)
			}
			return printServices(cmd.OutOrStdout(), services, known.Window)
		},
	}
	cmd.Flags().BoolVar(&learned, "learned", false, "show what nodes have learned of the objects that functions read by S3")
	cmd.Flags().BoolVar(&observed, "observed", false, "show what the inputs of observed functions name")
	cmd.Flags().StringVar(&q.Node, "node", "", "with --learned or --observed, only this node (default: all)")
	cmd.Flags().Float64Var(&megabits, "client-bandwidth", 100, "at how many Mbit/s clients send the bodies of requests")
	cmd.Flags().Float64Var(&worth, "worth", 100, "how many seconds of a replica are worth one second that a client waits")
	of.flags(cmd)
	c.cluster.flags(cmd)
	c.outputFlag(cmd)
	for _, flag := range []string{"learned", "client-bandwidth", "worth", "since", "prometheus"} {
		cmd.MarkFlagsMutuallyExclusive("observed", flag)
		if flag != "learned" {
			cmd.MarkFlagsMutuallyExclusive("learned", flag)
		}
	}
	return cmd
}

// printServices lists what services would gain.
func printServices(out io.Writer, services []advice.Service, w history.Window) error {
	rows := [][]string{}
	for _, s := range services {
		start, body, saves, cold, overlapped, set := "", "", "", "", "", s.Reason
		switch {
		case s.StartSeconds >= 1:
			start = seconds(s.StartSeconds)
		case s.StartSeconds > 0: // pods say whole seconds
			start = "<1s"
		}
		if s.BodyBytes >= 1e4 { // less is headers
			body = megabytes(int64(s.BodyBytes))
		}
		if len(s.Annotations) > 0 {
			all := []string{}
			for _, name := range sortedKeys(s.Annotations) {
				all = append(all, name+": "+s.Annotations[name])
			}
			if set = strings.Join(all, ", "); len(s.With) > 0 {
				set += "; with " + strings.Join(s.With, ", ")
			}
			saves = hours(s.IdleReplicaSeconds) + " of " + hours(float64(s.Replicas)*w.Length().Seconds())
			if cold = figure(s.ColdStarts); s.WaitedSeconds > 0 {
				cold += ", each " + seconds(s.WaitedSeconds/s.ColdStarts)
			}
			if s.OverlappedSeconds > 0 {
				overlapped = seconds(s.OverlappedSeconds)
			}
		}
		rows = append(rows, []string{s.Namespace + "/" + s.Name, figure(s.Requests), start, body, saves, cold, overlapped, set})
	}
	err := printTable(out, "The mesh has counted no request of a Service that is here: is the namespace right, does this Prometheus have istio_requests_total?", rows,
		"SERVICE", "REQUESTS", "START", "BODY", "REPLICA-HOURS SAVED", "COLD STARTS", "OVERLAPPED", "ANNOTATIONS")
	if err == nil {
		_, err = fmt.Fprintf(out, "\nOf the last %s, by steps of %s.\n", model.Duration(w.Length().Round(time.Second)), model.Duration(w.Step))
	}
	return err
}

func seconds(s float64) string { return figure(s) + "s" }

// hours are those of replicas.
func hours(s float64) string { return figure(s / time.Hour.Seconds()) }
