// Package reference writes docs/reference/annotations.md from what package policy checks,
// so that the page says what the code does.
package reference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

const intro = `<!-- Made by "make generate" from control-plane/policy. Do not edit. -->
# Annotations

A function opts in with annotations in its ` + "`metadata.annotations`" + `: those of a Knative Service, or on Kubernetes of any
Service. They state intent: they never contain a host path, a secret, or a URL outside what the operator allowed. Every value
is a string (quote numbers). ` + "`headstart apply`" + ` reports all problems of all documents together and deploys nothing while
there is one. On Kubernetes the API server rejects the object, by a ValidatingAdmissionPolicy that is generated from the same
table as this page.

| key | type | default | bounds |
|---|---|---|---|
`

const afterTable = "\nA key under `headstart.dev/`" + ` that is not in this table is an error, which suggests the most similar key.
Annotations of other domains have no effect on Headstart.

## What they mean

`

const observing = "## Try a template on real traffic\n" + `
A template that fits no request prefetches nothing, and one that lacks something refuses requests. To see what a template does before it
has any effect, begin with ` + "`observe`" + `:

` + "```yaml" + `
headstart.dev/mode: observe
headstart.dev/input: s3://videos/{header.x-key}
` + "```" + `

- The function's requests take the same way as without Headstart. Istio's configuration of the function stays as it is, except for metadata that
  the filter reads. No header is added, and no request is refused.
- The gateway's filter tells the node's daemon what the template makes of each request, and does not wait for the answer. Gateways also
  log the function's requests to the daemon, as those of every function.
- The daemon fetches nothing. It counts the references, and whether the function may read them
  ([` + "`headstart_observed_inputs_total`" + `](metrics.md)).
- Headstart neither stops nor wakes the function's pods, nor those that it shares with another Service. Scale them up before if they are at zero. Metrics of
  Headstart that an autoscaler reads have no requests of an observed function: have it keep its pods meanwhile.

[` + "`headstart advise --observed`" + `](cli.md#headstart-advise---observed) lists what templates have named on all nodes: the number of requests, of different
references, and the latest references. Few different references in many requests mean that the cache of the nodes will help.
Requests that are ` + "`incomplete`" + ` would be refused with ` + "`InputReferenceMalformed`" + `; those that are ` + "`refused`" + ` would fail with
` + "`StoreNotAllowed`" + `. If most are ` + "`unnamed`" + `, the template names a header, parameter or path that requests do not have.

Once the references are the objects that the function reads, remove the annotation, or write ` + "`active`" + `. Requests wait for the input then and have it
as their body, unless [` + "`headstart.dev/read-by`" + `](#what-they-mean) says that the program reads it by S3. Each change of the mode
changes the cluster of the function in gateways, so they open their connections to its instances again.

Annotations of pods are separate: a Service's pods keep the [volumes](volumes.md), the [S3](s3.md) and the [connections](connections.md) that
their own annotations ask for. A Knative Service has both in one object, and cannot have them together with ` + "`observe`" + `. On the
[embedded platform](../operations/embedded.md) requests have no other way than Headstart's, so ` + "`headstart apply`" + ` refuses the mode.

`

const beforeJobs = `## Jobs

A [job](jobs.md) has its annotations on its pod template: those of a Job, or of any pod of the RuntimeClass ` + "`headstart`" + `. These
keys are possible. They mean the same as above, except that no request names the input. Those from ` + "`headstart.dev/volumes`" + ` on, and the
store, are also for the pods of functions:

| key | type | default | bounds |
|---|---|---|---|
`

const beforeErrors = `## Errors

Each error names the key, the value (cut to 64 characters, without the userinfo of a URL) and the fix. The value of an
unknown key is not repeated.

| you wrote | the error says |
|---|---|
`

const outro = `
For a manifest the message includes path, document and line:
` + "`document 1, line 7: function default/fire: metadata.annotations[headstart.dev/store]: …`" + `

## On Kubernetes

- The admission policy checks an object when a ` + "`headstart.dev/`" + ` annotation is new, changed or removed. Other changes
  do not matter, so an object from before the installation stays usable.
- The API server's message ends with that of the first broken rule, and repeats the value as above.
- Annotations of a Knative Service's ` + "`spec.template.metadata`" + ` are rejected, except for those of [volumes](volumes.md)
  with their store, of [S3](s3.md), and of [connections](connections.md): they would belong to a revision, not to the function.
- Annotations of volumes and connections are checked when a pod is made, as those of a job.
- Annotations of a job belong to a pod: the policy rejects the pods that a Job creates, and the Job's events have the
  message. Pods that bypass the policy do not start, with the same message.
- If the policy is not installed, or was missing when the object was created, the control plane finds the same problems: the
  function runs as if it had no Headstart annotation, with an event, and ` + "`headstart check`" + ` fails.
`

// kinds are the types as the table has them.
var kinds = map[policy.Kind]string{
	policy.Reference:  "input reference template",
	policy.Path:       "URI template of a path",
	policy.Name:       "name",
	policy.Bytes:      "quantity in bytes (`512Mi`, `1.5G`, `1e9`)",
	policy.Duration:   "Go duration (`90s`, `1h30m`)",
	policy.Stream:     "reference of a stream",
	policy.Count:      "number",
	policy.Choice:     "word",
	policy.Prefixes:   "prefixes of buckets, by names, separated by commas",
	policy.Namespaces: "names of namespaces, separated by commas",
	policy.Names:      "names, separated by commas",
}

// allowed are the stores of the examples.
var allowed = stores.Stores{
	{Name: "default", Kind: stores.KindS3, Buckets: []string{"videos"}},
	{Name: "archive", Kind: stores.KindS3, Buckets: []string{"old-videos"}},
}

// mistakes are annotations that people write, each in one way wrong.
var mistakes = []struct{ key, value string }{
	{policy.Prefix + "inputs", "…"},
	{policy.Prefix + "inputs.mask", "…"},
	{policy.Prefix + "input.Mask", "…"},
	{policy.Prefix + "input.mask", "body"},
	{policy.KeyInput, "/data/a"},
	{policy.KeyInput, "s3://me:pw@videos/a"},
	{policy.KeyInput, "s3://private/a"},
	{policy.KeyInput, "redis://jobs/a"},
	{policy.KeyInput, "s3://videos/{key}"},
	{policy.KeyInput, "s3://videos/{query.key|lower}"},
	{policy.KeyInput, "s3://videos/{path.key}"},
	{policy.KeyPath, "videos/{key}"},
	{policy.KeyStore, "nowhere"},
	{policy.KeyInputLimit, "6Gi"},
	{policy.KeyInputLimit, "512m"},
	{policy.KeyScaleToZero, "30"},
	{policy.KeyReadyTimeout, "1h"},
	{policy.KeyTrigger, "jobs:frames"},
	{policy.KeyTrigger, "redis://jobs/frames"},
	{policy.KeyTriggerTries, "0"},
	{policy.KeyCallers, "media, web"},
	{policy.KeyRouting, "nearest"},
	{policy.KeyMode, "observe"},
	{policy.KeyVolumes, "models=s3://videos/llama/"},
	{policy.KeyConnections, "orders"},
}

// Page returns the page in Markdown.
func Page() string {
	var b strings.Builder
	b.WriteString(intro)
	all := policy.Annotations(policy.Functions)
	for _, a := range all {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", a.Key, kinds[a.Kind], standard(a), a.Bounds())
	}
	b.WriteString(afterTable)
	for _, a := range all {
		fmt.Fprintf(&b, "**`%s`** %s\n\n", a.Key, a.Meaning)
	}
	b.WriteString(observing + beforeJobs)
	for _, a := range policy.Annotations(policy.Jobs) {
		kind := kinds[a.Kind]
		if a.Literal {
			kind = "input reference"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", a.Key, kind, standard(a), a.Bounds())
	}
	for _, a := range policy.Annotations(policy.Jobs) {
		if !slices.Contains(policy.Keys(policy.Functions), a.Key) {
			fmt.Fprintf(&b, "\n**`%s`** %s\n", a.Key, a.Meaning)
		}
	}
	b.WriteString("\n" + beforeErrors)
	for _, m := range mistakes {
		fmt.Fprintf(&b, "| `%s: %s` | `%s` |\n", m.key, quoted(m.value), said(m.key, m.value))
	}
	b.WriteString(outro)
	return b.String()
}

func standard(a policy.Annotation) string {
	if a.Default == "" {
		return a.Absent
	}
	return "`" + a.Default + "`"
}

// quoted writes a number as YAML needs it to be a string.
func quoted(value string) string {
	if strings.Trim(value, "0123456789") == "" {
		return `"` + value + `"`
	}
	return value
}

// said returns what Parse says of one annotation. The list of keys is above it.
func said(key, value string) string {
	given := map[string]string{key: value}
	if key == policy.KeyStore {
		given[policy.KeyInput] = "s3://videos/a" // which makes the store matter
	}
	_, err := policy.Parse(given, allowed)
	if err == nil {
		return ""
	}
	list := strings.Join(policy.Keys(policy.Functions), ", ")
	return strings.ReplaceAll(err.Error(), list, "…")
}
