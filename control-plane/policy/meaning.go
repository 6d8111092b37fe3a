package policy

// What the annotations mean, in Markdown, as the reference page has it.
const (
	inputMeaning = `names the object that a request needs, so that it is fetched while the sandbox starts. There
are three forms:

| reference | of a store of kind | what is read |
|---|---|---|
| ` + "`s3://bucket/key`" + ` | ` + "`s3`" + ` | an object |
| ` + "`redis://keyspace/key`" + ` | ` + "`redis`" + ` | the string with the key ` + "`keyspace:key`" + ` |
| ` + "`https://host/path`, `http://host:port/path`" + ` | ` + "`http`" + ` | what the URL names. A ` + "`?`" + ` belongs to the path |

What stands before the key (bucket, keyspace or host; errors say bucket) is a literal or one ` + "`{header.<name>}`" + `. The key mixes
literals and placeholders. Header names are lower case. Nothing is decoded or escaped.

` + "```yaml" + `
headstart.dev/input: s3://videos/{header.x-camera}/{header.x-frame}.mjpeg
` + "```" + `

A literal bucket must be in the store's list when the function is deployed. One that a header names is
checked for each request, on the node.

The word ` + "`body`" + ` says that the input is the request's own body:

` + "```yaml" + `
headstart.dev/input: body
` + "```" + `

A body that comes while the function is cold then flows to the node of its instance while that starts, and is in the buffer
of that node when the function is ready. No store is needed. Requests without a body have no input, and once the
function is hot its requests go straight to it.`

	storeMeaning = `says which of the operator's stores the input is read from. The store must exist if the
function has an input, and be of the input's kind. On Kubernetes the operator also grants each store to namespaces, and the function's must be one
of them.`

	inputLimitMeaning = "is the largest object that is fetched; a larger one fails the request with `InputTooLarge`" + `
(413). So does a larger body where the body is the input, as long as the function is cold. The bound of 5Gi is the largest object that S3 takes in one PUT; over 100 Mbit/s it takes 430 s, which
still fits the longest request timeout. A fraction of a byte is refused: ` + "`512m`" + ` is half a byte in Kubernetes' syntax,
and ` + "`512Mi` or `512M`" + ` is what was meant.`

	scaleToZeroMeaning = `is how long the function's instance stays idle before it is stopped. On Kubernetes only a
Service that has this annotation is scaled to zero and back, through the scale subresource of the Deployment or
StatefulSet behind it, and never one that an autoscaler (HorizontalPodAutoscaler, KEDA) has; the default is the embedded
platform's. Knative Services are scaled by Knative's own autoscaler, and the annotation has no effect there.`

	readyTimeoutMeaning = `bounds a cold start, from the choice of the node to readiness. All that a request
waits for before it is delivered (node, readiness, and its input, which may be large or far away) must be there within
this time and 2 s of its arrival; the function then has its whole ` + "`timeoutSeconds`" + `. An input that comes later fails the
request with ` + "`StoreTimeout`" + `. A body need not be there: it is delivered as it comes.`

	triggerMeaning = `names a [stream](triggers.md) of Redis: the function is called for each of its entries, as for a
request by ` + "`POST /`" + ` that is a CloudEvent. ` + "`redis://jobs/frames`" + ` is the key ` + "`jobs:frames`" + `. With it comes the right to write: the
group of the function's consumers, and the dead letters beside the stream.

` + "```yaml" + `
headstart.dev/trigger: redis://jobs/frames
headstart.dev/input: s3://videos/{header.ce-subject}
` + "```" + `

The input's template sees the event's headers. The stream's keyspace must be in the store's list.`

	triggerStoreMeaning = `says which of the operator's stores the stream is in, if it is not the one that inputs are read
from: a store of the kind ` + "`redis`" + `.`

	triggerTriesMeaning = `is how often an entry is delivered that the function does not answer with 2xx, or whose input
cannot be had, before it goes to the dead letters. Deliveries that got to nobody do not count.`

	callersMeaning = `names namespaces whose functions may call this one by their [socket](socket.md#calling-a-function),
besides those of its own namespace, which always may. It says nothing of requests that come by a gateway.`

	routingMeaning = `says how gateways spread the function's requests over its endpoints while it has several:

| value | a request goes |
|---|---|
| ` + "`balanced`" + ` | where its answer is expected first: near, while there is room, and otherwise where the way and the wait together are shortest for all |
| ` + "`inverse`" + ` | to each endpoint by the inverse of round trip and time on the node, as in FaaSt. Some go far, however little is to do |
| ` + "`even`" + ` | to each endpoint as often, however far |

` + "`headstart weights`" + ` shows [what comes of it](cli.md#headstart-weights-function). On Kubernetes it holds for requests that come by the mesh's gateways.`

	readByMeaning = `says how a job's program reads its input. With ` + "`file`" + ` it starts when the file is there, complete.
With ` + "`socket`" + ` it starts at once, finds no file, and reads the input by its [socket](socket.md#reading-an-input) while that arrives.`
)
