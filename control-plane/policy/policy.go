// Package policy turns headstart.dev/ annotations into a typed policy.
package policy

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Policy is what a function's owner asks of Headstart, or a job's.
type Policy struct {
	// Input is the template of the input reference; empty: no stored input.
	Input string
	// Named are the templates of further inputs, by their names.
	Named map[string]string `json:",omitempty"`
	// Path is the URI template that the variables in them are of; empty: they have none.
	Path string `json:",omitempty"`
	// BodyInput tells that the request's body is the input. There is no Input then.
	BodyInput bool
	// Store is the operator's store that the inputs are read from.
	Store string
	// InputLimit is the largest of them in bytes.
	InputLimit int64
	// ScaleToZero is how long a function stays idle before its instance is stopped.
	ScaleToZero time.Duration
	// ReadyTimeout bounds a cold start, from binding to readiness.
	ReadyTimeout time.Duration
	// Trigger is the stream whose entries the function is called for, as
	// redis://keyspace/stream; empty: none.
	Trigger string
	// TriggerStore is the operator's store that has the stream; empty without a Trigger.
	TriggerStore string
	// TriggerTries is how often an entry is tried before it goes to the dead letters; 0
	// without a Trigger.
	TriggerTries int32
	// Callers are the namespaces besides its own whose functions may call it, with commas
	// between.
	Callers string
	// Routing is how gateways spread the function's requests over its endpoints, one of the
	// values of KeyRouting; empty, as of a job: RoutingBalanced.
	Routing string `json:",omitempty"`
	// Observe: Headstart only names the function's inputs. It does nothing else for its requests and pods.
	Observe bool `json:",omitempty"`
	// Workflow is the name of the workflow that answers the function's requests, in its namespace; empty: it has pods.
	Workflow string `json:",omitempty"`
	// State is the destination with what a workflow's runs have come to; empty: that is noted nowhere.
	State string `json:",omitempty"`
	// RunsAhead tells of a function that workflows may have work on requests before their turn.
	RunsAhead bool `json:",omitempty"`
	// ReadBySocket tells of a job that its program reads the input by its socket, and needs no
	// file.
	ReadBySocket bool `json:",omitempty"`
	// ReadByS3 tells of a function that its programs read the inputs by S3 on the node, which are fetched for that alone.
	ReadByS3 bool `json:",omitempty"`
	// S3Learn tells of a function that nodes are to learn which objects its programs read by S3.
	S3Learn bool `json:",omitempty"`
	// Volumes are those of the pods.
	Volumes Volumes `json:",omitzero"`
	// S3 is the operator's store whose S3 API the pods' programs find on their loopback; empty: none.
	S3 string `json:",omitempty"`
	// Connections are those of the pods.
	Connections Connections `json:",omitzero"`
}

// Tell says of a function what nodes must know of its policy.
func (p Policy) Tell(m *nodeapi.Function) {
	m.ReadyTimeout, m.Store, m.InputLimit = durationpb.New(p.ReadyTimeout), p.Store, p.InputLimit
	if p.Observe {
		m.Observed = p.Templates()
	} else {
		m.HasInput, m.BodyInput = p.Input != "", p.BodyInput
		m.InputTemplate, m.InputTemplates = p.Templates()[""], p.Templates().Named()
	}
	m.Callers, m.S3, m.ReadByS3, m.S3Learn = p.CallerNamespaces(), p.S3, p.ReadByS3, p.S3Learn
	m.State = p.State
}

// CallerNamespaces are the names in Callers.
func (p Policy) CallerNamespaces() []string {
	if p.Callers == "" {
		return nil
	}
	return strings.Split(p.Callers, ",")
}

// Defaults, for a function that says nothing.
const (
	DefaultStore = "default"
	// DefaultInputLimit is ten times what Truffle (section I) counts as a large input,
	// and leaves a small node's disk intact when a template names the wrong object.
	DefaultInputLimit = 1 << 30
	// DefaultScaleToZero is Knative's scale-to-zero-grace-period.
	DefaultScaleToZero = 30 * time.Second
	// DefaultReadyTimeout covers a runtime that starts slowly on a busy edge node.
	DefaultReadyTimeout = 60 * time.Second
	// DefaultVolumesWait is half of what the kubelet gives a container to start (runtimeRequestTimeout).
	DefaultVolumesWait = 60 * time.Second
	// DefaultTriggerTries is over 15 s, with the pauses between: longer than what the
	// function itself needs takes to restart.
	DefaultTriggerTries = 5
)

// Bounds of what a function's owner may ask for.
const (
	// MaxInputLimit is the largest object that S3 takes in one PUT. Its transfer over a
	// link of 100 Mbit/s takes 430 s, which still fits the longest request timeout.
	MaxInputLimit = 5 << 30
	// MinScaleToZero keeps an instance from being stopped between two requests of one
	// burst.
	MinScaleToZero = time.Second
	// MaxScaleToZero is a day: a function that is used every day stays warm.
	MaxScaleToZero = 24 * time.Hour
	// MinReadyTimeout is more than a sandbox without a program takes.
	MinReadyTimeout = time.Second
	// MaxReadyTimeout is the longest request timeout: no caller waits longer.
	MaxReadyTimeout = 10 * time.Minute
	// MaxTriggerTries is three quarters of an hour of pauses.
	MaxTriggerTries = 100
	// MaxVolumesWait is as for readiness.
	MaxVolumesWait = MaxReadyTimeout
	// MaxConnections is as many servers as one program talks to at its start.
	MaxConnections = 8
	// MaxCallers keeps what each node has to know of a function small.
	MaxCallers = 32
)

// StoredInput tells whether requests may name a stored input, be it only observed.
func (p Policy) StoredInput() bool { return p.Input != "" || len(p.Named) > 0 }

// Templates are the whole templates of the inputs' references, with the path.
func (p Policy) Templates() reference.Inputs {
	templates := reference.NewInputs(p.Input, p.Named)
	for name, input := range templates {
		templates[name] = reference.Join(p.Path, input)
	}
	return templates
}

// InputAsGiven returns what the annotation says of the input, empty if there is none.
func (p Policy) InputAsGiven() string {
	if p.BodyInput {
		return InputBody
	}
	return p.Input
}

// Default returns the policy of a function without annotations.
func Default() Policy {
	return Policy{
		Store: DefaultStore, InputLimit: DefaultInputLimit,
		ScaleToZero: DefaultScaleToZero, ReadyTimeout: DefaultReadyTimeout, Routing: RoutingBalanced,
	}
}
