package policy

import (
	"fmt"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// What the annotations mean, in Markdown, as the reference page has it.
var inputMeaning = `names the object that a request needs, which Headstart fetches while the sandbox starts. Its forms
are:

` + forms() + `
What stands before the key (bucket, keyspace or host; errors say bucket) is a literal or one placeholder. The key
mixes literals and placeholders:

| placeholder | is |
|---|---|
| ` + "`{header.<name>}`" + ` | a header; its name is in lower case |
| ` + "`{query.<name>}`" + ` | a parameter of the query; its name is compared as it stands there |
| ` + "`{path.<name>}`" + ` | a variable of ` + "`headstart.dev/path`" + ` |

A value is taken as it stands in the request; nothing is decoded. Up to 4 modifiers may follow the name, each after a ` + "`|`" + `. They
change the value in their order:

| modifier | does |
|---|---|
| ` + "`urldecode`" + ` | decodes percent-encoding, once. In a query a ` + "`+`" + ` is a space |
| ` + "`trimprefix:<text>`" + ` | removes the text from the beginning of a value that begins with it. The text has no braces, no bar, and in a bucket no slash |

` + "```yaml" + `
headstart.dev/input: s3://videos/{header.x-camera}/{header.x-frame}.mjpeg
` + "```" + `

A request names its input if it has any of what the placeholders name. It must then have all of them, and each header and
parameter once. Values are checked after the modifiers: a bucket is a bucket's name, a key is UTF-8 without control characters and
without a segment ` + "`.`" + ` or ` + "`..`" + `. Otherwise the request fails with ` + "`InputReferenceMalformed`" + ` (400), which names the
header, the parameter or the path.

A literal bucket must be in the store's list when the function is deployed. One that a request names is
checked for each request, on the node.

CloudEvents over HTTP have their attributes in headers, percent-encoded. The subject of an event of Google Cloud Storage is
` + "`objects/`" + ` and the object's name:

` + "```yaml" + `
headstart.dev/input: s3://videos/{header.ce-subject|urldecode|trimprefix:objects/}
` + "```" + `

A notification of S3 is JSON in the body, which cannot be named. Its keys are encoded like those in a query, with ` + "`+`" + ` for a space.
So a sender that copies bucket and key from the notification into the URL, as ` + "`?bucket=videos&key=red+flower.jpg`" + `, names the input:

` + "```yaml" + `
headstart.dev/input: s3://{query.bucket}/{query.key|urldecode}
` + "```" + `

The word ` + "`body`" + ` makes the request's own body the input:

` + "```yaml" + `
headstart.dev/input: body
` + "```" + `

While the function is cold, the body flows to the node of the starting instance, and is in that node's buffer when the function is
ready. No store is needed. Requests without a body have no input, and once the
function is hot its requests go straight to the instance.`

// forms has a row for each kind of reference.
func forms() string {
	rows := "| reference | kind of store | input |\n|---|---|---|\n"
	for _, k := range reference.Kinds() {
		rows += fmt.Sprintf("| `%s` | `%s` | %s |\n", k.Form, k.Store, k.Input)
	}
	return rows
}

const (
	namedInputMeaning = `names a further object that a request needs, by a name of your choice, so that a
function can read an image and its mask, or a video and its subtitles:

` + "```yaml" + `
headstart.dev/input: s3://videos/{header.x-key}
headstart.dev/input.mask: s3://masks/{header.x-key}.png
headstart.dev/input.subtitles: s3://subtitles/{query.lang}/{header.x-key}.vtt
` + "```" + `

References, placeholders, store, path, limit and errors are those of ` + "`headstart.dev/input`" + `, which need not
be there. A request may name some of the inputs and lack others. All that it names are fetched at the same time, and
the request is delivered when all of them are complete.

Each is a file, ` + "`/headstart/inputs/<name>/<request>`" + `, where ` + "`<request>`" + ` is the request's
` + "`x-headstart-request`" + `; ` + "`HEADSTART_INPUTS_DIR`" + ` is ` + "`/headstart/inputs`" + `. The
[socket](socket.md#reading-an-input) has them, too. A named input is never the request's body. So sandboxes without
the directory do not get it: pods without the RuntimeClass ` + "`headstart`" + `, cold requests that Knative's
activator delivers, and sandboxes from before an update.`

	pathMeaning = `is a URI template ([RFC 6570](https://www.rfc-editor.org/rfc/rfc6570)) of the paths whose requests name an
input. It gives parts of a path the names that ` + "`headstart.dev/input`" + ` uses. Of a function with several routes this is the one
whose requests need the input; requests with other paths have none.

` + "```yaml" + `
headstart.dev/path: /videos/{camera}/{+frame}
headstart.dev/input: s3://videos/{path.camera}/{path.frame|urldecode}.mjpeg
` + "```" + `

A variable is a whole segment; ` + "`{+<name>}`" + ` at the end is all that is left of the path, with its slashes. Paths are compared as
they come, without the query, so a literal matches only if the client did not encode it. If decoding a segment yields a slash, the
request is refused. Where a mesh's route rewrites paths, gateways with the filter compare the path before the rewrite, and nodes
the path after it: do not rewrite paths that name inputs.`

	storeMeaning = `names the operator's store that the input is read from. If the
function has an input, the store must exist and be of the input's kind. On Kubernetes the store must also be granted to the function's
namespace.`

	inputLimitMeaning = "is the size of the largest object that is fetched. A larger one fails the request with `InputTooLarge`" + `
(413), and so does a larger body that is the input, as long as the function is cold. The bound of 5Gi is the largest object that S3
accepts in one PUT. Over 100 Mbit/s it takes 430 s, which still fits the longest request timeout. A fraction of a byte is refused: ` + "`512m`" + ` is half a byte in Kubernetes' syntax,
and probably meant as ` + "`512Mi` or `512M`" + `.`

	scaleToZeroMeaning = `is how long the function's instance stays idle before it is stopped. On Kubernetes Headstart scales only
Services with this annotation to zero and back, through the scale subresource of the Deployment or
StatefulSet behind them, which comes back with the replicas that it had. [Other autoscalers](../operations/autoscaling.md) scale it
between one and more. The default applies to the embedded platform. Knative's own autoscaler scales Knative Services, and the annotation has no effect there.`

	readyTimeoutMeaning = `limits a cold start, from the choice of the node to readiness. Everything that a request
waits for before its delivery (node, readiness, and its input, which may be large or far away) must be there within
this time and 2 s of its arrival. The function then has its whole ` + "`timeoutSeconds`" + `. An input that comes later fails the
request with ` + "`StoreTimeout`" + `. A body need not be complete: it is delivered as it comes.`

	triggerMeaning = `names a Redis [stream](triggers.md): the function is called for each of its entries, with a
` + "`POST /`" + ` that is a CloudEvent. ` + "`redis://jobs/frames`" + ` is the key ` + "`jobs:frames`" + `. The annotation implies write access, for
the group of the function's consumers, and the dead letters beside the stream.

` + "```yaml" + `
headstart.dev/trigger: redis://jobs/frames
headstart.dev/input: s3://videos/{header.ce-subject}
` + "```" + `

The input's template sees the event's headers, which are not encoded here: ` + "`|urldecode`" + ` leaves them. An event has neither path
nor query. The stream's keyspace must be in the store's list.`

	triggerStoreMeaning = `names the operator's store with the stream, if inputs are read from another one.
Its kind must be ` + "`redis`" + `.`

	triggerTriesMeaning = `is how often an entry is tried before it goes to the dead letters. A try fails if the function does not
answer with 2xx, or if the input cannot be had. Deliveries that reached no function do not count.`

	callersMeaning = `names namespaces whose functions may call this one through their [socket](socket.md#calling-a-function).
Functions of its own namespace always may. Requests through a gateway are not affected.`

	routingMeaning = `sets how gateways spread the function's requests over its endpoints if it has several:

| value | a request goes |
|---|---|
| ` + "`balanced`" + ` | where its answer is expected first: near, while there is room, and otherwise where way and wait together are shortest for all requests |
| ` + "`inverse`" + ` | to each endpoint by the inverse of round trip and time on the node, as in FaaSt. Some go far even when there is little load |
| ` + "`even`" + ` | to each endpoint equally often, regardless of distance |

` + "`headstart weights`" + ` shows [the result](cli.md#headstart-weights-function). On Kubernetes it applies to requests through the mesh's gateways.`

	volumesMeaning = `names prefixes of buckets whose objects a pod reads as files: models, data sets. All objects
below a prefix are fetched when the pod is bound to its node, and its containers see them when all are there:

` + "```yaml" + `
headstart.dev/volumes: models=s3://models/llama/,words=s3://data/words/
` + "```" + `

` + "`s3://models/llama/7b/weights.bin` is `/headstart/volumes/models/7b/weights.bin`" + `. A volume is read-only, and stays the
same as long as the pod lives: the objects as they were when the pod was bound. If the pod mounts an ` + "`emptyDir`" + ` of the
volume's name, the volume is in its place, too. So a manifest that fills that ` + "`emptyDir`" + ` by other means works without
Headstart. See [volumes](volumes.md).

The annotation is one of pods: it belongs in ` + "`spec.template.metadata.annotations`" + ` of a Deployment, a Job, or a Knative
Service, with ` + "`headstart.dev/store`" + ` beside it if the store has another name. Only stores of the kind ` + "`s3`" + ` have volumes.`

	volumesWaitMeaning = `is how long the start of a container waits for the volumes; ` + "`0s`" + ` does not wait. The
kubelet gives a container 2 minutes to start (` + "`runtimeRequestTimeout`" + `). The fetch goes on meanwhile, so the next try of
the kubelet waits less.`

	volumesLateMeaning = `says what follows then. With ` + "`fail`" + ` the container fails to start, and the kubelet tries
again. With ` + "`start`" + ` it starts without the volumes that are not there, and does not get them later.`

	s3Meaning = `names the store whose S3 API the programs of the pod find on their loopback, by the variables that the
SDKs know: boto3, the AWS SDKs and ` + "`aws s3 cp`" + ` need no change. What they read the node keeps, as it keeps inputs, and
what they write goes on to the store. See [S3 on the node](s3.md).

The annotation is one of pods, as ` + "`headstart.dev/volumes`" + ` is. Only stores of the kind ` + "`s3`" + ` have the API.`

	connectionsMeaning = `names [destinations](connections.md) of the operator: servers that Headstart connects the program to
before it starts. A container starts whether or not its connections are there.

` + "```yaml" + `
headstart.dev/connections: orders,sessions
` + "```" + `

The annotation is one of pods, as ` + "`headstart.dev/volumes`" + ` is. Only the container with the function's port has the
connections; of a job, and of a pod of no function, the first one. The operator must have granted the destinations to the namespace.`

	connectionsByMeaning = `says how the program gets its connections:

| value | the program |
|---|---|
| ` + "`socket`" + ` | connects to a unix socket in ` + "`/headstart/socket/<name>/`" + `, which most drivers take as the server's host or path |
| ` + "`descriptor`" + ` | has the connection open when it starts |
| ` + "`connect`" + ` | connects to the server's address as without Headstart |

[Which way suits which driver](connections.md#ways-in).`

	functionReadByMeaning = `says how the function's program reads its inputs. With ` + "`body`" + ` a request waits for them and
has one as its body. With ` + "`s3`" + ` the program reads them itself by [S3 on the node](s3.md): they are fetched meanwhile, and the
request does not wait. The pods have ` + "`headstart.dev/s3`" + ` then, with the store of ` + "`headstart.dev/store`" + `.`

	s3LearnMeaning = `has nodes learn which objects the function's programs read by [S3 on the node](s3.md#what-nodes-learn) for
which requests, and fetch them when the next one starts an instance. For functions without an input.`

	stateMeaning = "names the [destination](connections.md#the-list) of the kind `redis`, with the origin `node`, where nodes note what the runs of a workflow\n" +
		"have come to, so that a request with the same `Idempotency-Key` [goes on with a run](workflows.md#requests-that-come-again) whose node is lost. Of workflows only."

	speculationMeaning = "says whether [workflows](workflows.md#running-ahead) may have the function work before its turn, on an input that was\n" +
		"guessed. With `allowed` its sandboxes are closed, and each instance takes one request at a time."

	readByMeaning = `says how a job's program reads its input. With ` + "`file`" + ` it starts when the file is there, complete.
With ` + "`socket`" + ` it starts at once, finds no file, and reads the input by its [socket](socket.md#reading-an-input) while that arrives.`
)

const workflowMeaning = `names the [Workflow](workflows.md) of the Service's namespace that answers its requests. Such a Service has no
selector. Of the other annotations it may have ` + "`headstart.dev/callers`, `headstart.dev/state`" + ` and those of triggers. On one machine a workflow
needs no Service.`

const modeMeaning = "says what Headstart does with the inputs. With `active` it fetches them. With `observe` it only names\n" +
	"them and fetches nothing, so that you can [try a template on real traffic](#try-a-template-on-real-traffic).\n\n" +
	"An observed function has at least one input, and may have `headstart.dev/path`, `headstart.dev/store`, `headstart.dev/input-limit` and\n" +
	"`headstart.dev/ready-timeout`; the last two have no effect until the mode is `active`. All other annotations in this list are refused,\n" +
	"because by them Headstart would do more than name inputs. The input `body` is refused, too: it names no object. Kubernetes only."
