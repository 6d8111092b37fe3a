package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/policy/quantity"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// Prefix is the domain of Headstart's annotations. Parse ignores all others.
const Prefix = filterapi.AnnotationPrefix

// The keys of the annotations.
const (
	KeyInput        = filterapi.AnnotationInput
	KeyNamedInput   = filterapi.AnnotationNamed + "<name>" // as the table has all of them
	KeyPath         = filterapi.AnnotationPath
	KeyStore        = filterapi.AnnotationStore
	KeyInputLimit   = filterapi.AnnotationInputLimit
	KeyScaleToZero  = filterapi.AnnotationScaleToZero
	KeyReadyTimeout = filterapi.AnnotationReadyTimeout
	KeyTrigger      = filterapi.AnnotationTrigger
	KeyTriggerStore = filterapi.AnnotationTriggerStore
	KeyTriggerTries = filterapi.AnnotationTriggerTries
	KeyCallers      = filterapi.AnnotationCallers
	KeyRouting      = filterapi.AnnotationRouting
	KeyMode         = filterapi.AnnotationMode
	KeyWorkflow     = filterapi.AnnotationWorkflow
	KeyReadBy       = filterapi.AnnotationReadBy
	KeyVolumes      = filterapi.AnnotationVolumes
	KeyVolumesWait  = filterapi.AnnotationVolumesWait
	KeyVolumesLate  = filterapi.AnnotationVolumesLate
	KeyS3           = filterapi.AnnotationS3
	KeyS3Learn      = filterapi.AnnotationS3Learn
	KeySpeculation  = filterapi.AnnotationSpeculation
	KeyState        = filterapi.AnnotationState

	KeyConnections   = filterapi.AnnotationConnections
	KeyConnectionsBy = filterapi.AnnotationConnectionsBy
)

// The values of KeyRouting.
const (
	RoutingBalanced = "balanced"
	RoutingInverse  = "inverse"
	RoutingEven     = "even"
)

// The values of KeyMode.
const (
	ModeActive  = "active"
	ModeObserve = "observe"
)

// The values of KeyReadBy.
const (
	ReadByFile   = "file"
	ReadBySocket = filterapi.ReadBySocket
	ReadByBody   = "body"
	ReadByS3     = "s3"
)

// The values of KeyS3Learn.
const (
	LearnOff = "off"
	LearnOn  = "on"
)

// The values of KeySpeculation.
const (
	SpeculationAllowed = "allowed"
	SpeculationNever   = "never"
)

// The values of KeyVolumesLate.
const (
	LateFail  = "fail"
	LateStart = filterapi.LateStart
)

// InputBody is the value of KeyInput that names no object but the request's own body.
const InputBody = "body"

// Objects are the objects that annotations are on.
type Objects int

// The objects. What an annotation means on both is the same.
const (
	Functions Objects = 1 << iota
	// Jobs are pods: those with an input of their own, and on Kubernetes those of functions, too.
	Jobs
	// Templates are the pod templates of functions.
	Templates
	// Workflows are functions that call others.
	Workflows
)

// Kind is the form of an annotation's value.
type Kind int

// The kinds of values.
const (
	// Reference is a template of filterapi.
	Reference Kind = iota + 1
	// Name is a DNS label (RFC 1123, section 2.1).
	Name
	// Bytes is a quantity in bytes, in the syntax of Kubernetes.
	Bytes
	// Duration is a duration in the syntax of Go.
	Duration
	// Stream is a stream of a store, such as redis://jobs/frames.
	Stream
	// Count is a number from 1.
	Count
	// Namespaces are names of namespaces with commas between.
	Namespaces
	// Choice is one of a few words.
	Choice
	// Path is a URI template of filterapi's grammar.
	Path
	// Prefixes are prefixes of buckets, by names, with commas between.
	Prefixes
	// Names are different DNS labels with commas between.
	Names
)

// MaxDuration is longer than any sensible spelling of a duration, in bytes.
const MaxDuration = 32

// Annotation is all that is to be said about one annotation. Parse, the reference page
// and the admission policies of Kubernetes are made of it.
type Annotation struct {
	// Key may end with <name>, for which the function's owner puts a name: see Named.
	Key string
	// On are the objects that may have it.
	On   Objects
	Kind Kind
	// Default is the value that counts when there is none, empty for none.
	Default string
	// Absent is what holds without the annotation where no value says the same.
	Absent string
	// Example is a value as people write it.
	Example string
	// Word is the one value that is allowed beside those of the Kind; empty: none.
	Word string
	// Choices are the words of a Choice. Not says what another word, or what is no Name, is not.
	Choices []string
	Not     string
	// Observed: a function may have it beside KeyMode: observe.
	Observed bool
	// Literal: a Reference names no headers.
	Literal bool
	// Shortest and Longest bound a Duration.
	Shortest, Longest time.Duration
	// Largest bounds Bytes, Count, and how many Names there are; the smallest is 1.
	Largest int64
	// Meaning explains it to a function's owner, in Markdown.
	Meaning string
	// set puts a valid value into the policy, and the zero value for a wrong one: what
	// is wrong counts as absent in the checks that follow, not as the default.
	set func(*Policy, value)
}

// value is a value as it was written and, for quantities and durations, what it means.
type value struct {
	// name stands for the <name> in the key.
	name   string
	text   string
	number int64
}

// notStore is said of what cannot be a store's name.
const notStore = "is not the name of a store"

// table has all annotations, in the order of the reference. One that differs between functions
// and jobs has a row for each.
var table = []Annotation{
	{
		Key: KeyInput, On: Functions, Observed: true, Kind: Reference, Absent: "none: the function has no input",
		Example: "s3://videos/{header.x-key}", Word: InputBody, Meaning: inputMeaning,
		set: setInput,
	},
	{
		Key: KeyNamedInput, On: Functions, Observed: true, Kind: Reference, Absent: "none", Example: "s3://masks/{header.x-key}.png",
		Meaning: namedInputMeaning, set: setNamedInput,
	},
	{
		// No request names a job's input.
		Key: KeyInput, On: Jobs, Kind: Reference, Literal: true, Absent: "none: it is no job of Headstart's",
		Example: "s3://videos/camera-7/1.mjpeg", Meaning: inputMeaning,
		set: setInput,
	},
	{
		Key: KeyPath, On: Functions, Observed: true, Kind: Path, Absent: "none: the input names nothing of the path",
		Example: "/videos/{camera}/{+frame}", Meaning: pathMeaning,
		set: func(p *Policy, v value) { p.Path = v.text },
	},
	{
		Key: KeyStore, On: Functions | Jobs | Templates, Observed: true, Kind: Name, Not: notStore, Default: DefaultStore,
		Example: "archive", Meaning: storeMeaning,
		set: func(p *Policy, v value) { p.Store = v.text },
	},
	{
		Key: KeyInputLimit, On: Functions | Jobs, Observed: true, Kind: Bytes, Default: quantity.Format(DefaultInputLimit),
		Example: "512Mi",
		Largest: MaxInputLimit, Meaning: inputLimitMeaning,
		set: func(p *Policy, v value) { p.InputLimit = v.number },
	},
	{
		Key: KeyScaleToZero, On: Functions, Kind: Duration, Default: Span(DefaultScaleToZero), Example: "90s",
		Shortest: MinScaleToZero, Longest: MaxScaleToZero, Meaning: scaleToZeroMeaning,
		set: func(p *Policy, v value) { p.ScaleToZero = time.Duration(v.number) },
	},
	{
		Key: KeyReadyTimeout, On: Functions | Jobs, Observed: true, Kind: Duration, Default: Span(DefaultReadyTimeout), Example: "5m",
		Shortest: MinReadyTimeout, Longest: MaxReadyTimeout, Meaning: readyTimeoutMeaning,
		set: func(p *Policy, v value) { p.ReadyTimeout = time.Duration(v.number) },
	},
	{
		Key: KeyTrigger, On: Functions | Workflows, Kind: Stream, Absent: "none: the function is called by requests only",
		Example: "redis://jobs/frames", Meaning: triggerMeaning,
		set: func(p *Policy, v value) { p.Trigger = v.text },
	},
	{
		Key: KeyTriggerStore, On: Functions | Workflows, Kind: Name, Not: notStore, Absent: "that of `headstart.dev/store`", Example: "queues",
		Meaning: triggerStoreMeaning,
		set:     func(p *Policy, v value) { p.TriggerStore = v.text },
	},
	{
		Key: KeyTriggerTries, On: Functions | Workflows, Kind: Count, Default: strconv.Itoa(DefaultTriggerTries), Example: "10",
		Largest: MaxTriggerTries, Meaning: triggerTriesMeaning,
		set: func(p *Policy, v value) { p.TriggerTries = int32(v.number) },
	},
	{
		Key: KeyCallers, On: Functions | Workflows, Kind: Namespaces, Absent: "none: functions of its own namespace",
		Example: "media,web", Meaning: callersMeaning,
		set: func(p *Policy, v value) { p.Callers = v.text },
	},
	{
		Key: KeyRouting, On: Functions, Kind: Choice, Default: RoutingBalanced, Example: RoutingInverse,
		Meaning: routingMeaning,
		Choices: []string{RoutingBalanced, RoutingInverse, RoutingEven}, Not: "is not how requests are routed",
		set: func(p *Policy, v value) { p.Routing = v.text },
	},
	{
		Key: KeyMode, On: Functions, Observed: true, Kind: Choice, Default: ModeActive, Example: ModeObserve, Meaning: modeMeaning,
		Choices: []string{ModeActive, ModeObserve}, Not: "is neither of the two",
		set: func(p *Policy, v value) { p.Observe = v.text == ModeObserve },
	},
	{
		Key: KeyWorkflow, On: Functions, Kind: Name, Not: "is not the name of a Workflow", Absent: "none: the function has pods",
		Example: "checkout", Meaning: workflowMeaning,
		set: func(p *Policy, v value) { p.Workflow = v.text },
	},
	{
		Key: KeyState, On: Functions | Workflows, Kind: Name, Not: "is not the name of a destination", Absent: "none", Example: "sessions",
		Meaning: stateMeaning,
		set:     func(p *Policy, v value) { p.State = v.text },
	},
	{
		Key: KeyReadBy, On: Functions, Kind: Choice, Default: ReadByBody, Example: ReadByS3, Meaning: functionReadByMeaning,
		Choices: []string{ReadByBody, ReadByS3}, Not: "is not how a function reads its inputs",
		set: func(p *Policy, v value) { p.ReadByS3 = v.text == ReadByS3 },
	},
	{
		Key: KeyS3Learn, On: Functions, Kind: Choice, Default: LearnOff, Example: LearnOn, Meaning: s3LearnMeaning,
		Choices: []string{LearnOff, LearnOn}, Not: "is neither of the two",
		set: func(p *Policy, v value) { p.S3Learn = v.text == LearnOn },
	},
	{
		Key: KeySpeculation, On: Functions, Kind: Choice, Default: SpeculationNever, Example: SpeculationAllowed, Meaning: speculationMeaning,
		Choices: []string{SpeculationNever, SpeculationAllowed}, Not: "is neither of the two",
		set: func(p *Policy, v value) { p.RunsAhead = v.text == SpeculationAllowed },
	},
	{
		Key: KeyReadBy, On: Jobs, Kind: Choice, Default: ReadByFile, Example: ReadBySocket, Meaning: readByMeaning,
		Choices: []string{ReadByFile, ReadBySocket}, Not: "is not how a job reads its input",
		set: func(p *Policy, v value) { p.ReadBySocket = v.text == ReadBySocket },
	},
	{
		Key: KeyVolumes, On: Jobs | Templates, Kind: Prefixes, Absent: "none", Example: "models=s3://models/llama/",
		Meaning: volumesMeaning,
		set:     func(p *Policy, v value) { p.Volumes.List, _ = reference.ParseVolumes(v.text) }, // it was checked
	},
	{
		Key: KeyVolumesWait, On: Jobs | Templates, Kind: Duration, Default: Span(DefaultVolumesWait), Example: "5m",
		Longest: MaxVolumesWait, Meaning: volumesWaitMeaning,
		set: func(p *Policy, v value) { p.Volumes.Wait = time.Duration(v.number) },
	},
	{
		Key: KeyVolumesLate, On: Jobs | Templates, Kind: Choice, Default: LateFail, Example: LateStart,
		Meaning: volumesLateMeaning,
		Choices: []string{LateFail, LateStart}, Not: "is not what follows when volumes are late",
		set: func(p *Policy, v value) { p.Volumes.StartLate = v.text == LateStart },
	},
	{
		Key: KeyS3, On: Jobs | Templates, Kind: Name, Not: notStore, Absent: "none", Example: "archive", Meaning: s3Meaning,
		set: func(p *Policy, v value) { p.S3 = v.text },
	},
	{
		Key: KeyConnections, On: Jobs | Templates, Kind: Names, Not: "is not a list of destinations", Absent: "none",
		Example: "orders,sessions", Largest: MaxConnections, Meaning: connectionsMeaning,
		set: func(p *Policy, v value) { p.Connections.Destinations = strings.FieldsFunc(v.text, isComma) },
	},
	{
		Key: KeyConnectionsBy, On: Jobs | Templates, Kind: Choice, Default: filterapi.BySocket, Example: filterapi.ByConnect,
		Meaning: connectionsByMeaning, Not: "is not a way to get connections",
		Choices: []string{filterapi.BySocket, filterapi.ByDescriptor, filterapi.ByConnect},
		set:     func(p *Policy, v value) { p.Connections.By = v.text },
	},
}

func isComma(r rune) bool { return r == ',' }

func setInput(p *Policy, v value) {
	if p.BodyInput = v.text == InputBody; !p.BodyInput {
		p.Input = v.text
	}
}

func setNamedInput(p *Policy, v value) {
	if v.text == "" {
		return
	}
	if p.Named == nil {
		p.Named = map[string]string{}
	}
	p.Named[v.name] = v.text
}

// Named tells whether the key has a name in it, and with what it begins.
func (a Annotation) Named() (prefix string, ok bool) { return strings.CutSuffix(a.Key, "<name>") }

// keys are those of the given ones that are the annotation's.
func (a Annotation) keys(given map[string]string) (keys []string) {
	prefix, named := a.Named()
	for _, key := range slices.Sorted(maps.Keys(given)) {
		name, has := strings.CutPrefix(key, prefix)
		if named && has && reference.IsInputName(name) || !named && key == a.Key {
			keys = append(keys, key)
		}
	}
	return keys
}

// Annotations returns those that the objects may have, in the order of the reference.
func Annotations(on Objects) []Annotation {
	return slices.DeleteFunc(slices.Clone(table), func(a Annotation) bool { return a.On&on == 0 })
}

// Keys returns their keys.
func Keys(on Objects) []string {
	var keys []string
	for _, a := range Annotations(on) {
		keys = append(keys, a.Key)
	}
	return keys
}

// Bounds says in Markdown what values may be.
func (a Annotation) Bounds() string {
	switch a.Kind {
	case Choice:
		return "`" + strings.Join(a.Choices, "` or `") + "`"
	case Reference:
		if a.Literal {
			return fmt.Sprintf("%d bytes, no placeholders", reference.MaxTemplateBytes)
		}
		bounds := fmt.Sprintf("%d bytes, %d placeholders", reference.MaxTemplateBytes, reference.MaxPlaceholders)
		if _, named := a.Named(); named {
			return fmt.Sprintf("%s; %d of them, whose names are DNS labels of %d bytes",
				bounds, reference.MaxNamed, reference.MaxNameBytes)
		}
		return "`" + a.Word + "`, or " + bounds
	case Path:
		return fmt.Sprintf(
			"%d bytes; segments of a-z, A-Z, 0-9, `-._~:@`, or `{<name>}`; `{+<name>}` at the end",
			reference.MaxRouteBytes,
		)
	case Name:
		return "a DNS label"
	case Bytes:
		return "1 byte to `" + quantity.Format(a.Largest) + "`"
	case Duration:
		return "`" + Span(a.Shortest) + "` to `" + Span(a.Longest) + "`"
	case Stream:
		return "`redis://`, a bucket (the keyspace), `/`, and 1 to 256 of a-z, A-Z, 0-9, `.`, `_`, `:`, `/` and `-`"
	case Count:
		return fmt.Sprintf("1 to %d", a.Largest)
	case Namespaces:
		return fmt.Sprintf("%d namespaces, without spaces", MaxCallers)
	case Names:
		return fmt.Sprintf("1 to %d names, each once, without spaces", a.Largest)
	case Prefixes:
		return fmt.Sprintf("%d volumes, without spaces between; names are DNS labels; "+
			"prefixes end with `/` and have no comma", reference.MaxVolumes)
	}
	return ""
}

// Span writes a duration as people do: 90s, not 1m30s0ms; 5m, not 5m0s.
func Span(d time.Duration) string {
	s := d.String()
	if rest, ok := strings.CutSuffix(s, "m0s"); ok {
		s = rest + "m"
	}
	if rest, ok := strings.CutSuffix(s, "h0m"); ok {
		s = rest + "h"
	}
	return s
}
