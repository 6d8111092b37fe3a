package policy

// What the annotations mean, in Markdown, as the reference page has it.
const (
	inputMeaning = `names the object that a request needs, which Headstart fetches while the sandbox starts. There
are three forms:

| reference | kind of store | input |
|---|---|---|
| ` + "`s3://bucket/key`" + ` | ` + "`s3`" + ` | an object |
| ` + "`redis://keyspace/key`" + ` | ` + "`redis`" + ` | the string with the key ` + "`keyspace:key`" + ` |
| ` + "`https://host/path`, `http://host:port/path`" + ` | ` + "`http`" + ` | the URL's content. A ` + "`?`" + ` belongs to the path |

What stands before the key (bucket, keyspace or host; errors say bucket) is a literal or one ` + "`{header.<name>}`" + `. The key mixes
literals and placeholders. Header names are lower case. Nothing is decoded or escaped.

` + "```yaml" + `
headstart.dev/input: s3://videos/{header.x-camera}/{header.x-frame}.mjpeg
` + "```" + `

A literal bucket must be in the store's list when the function is deployed. One that a header names is
checked for each request, on the node.

The word ` + "`body`" + ` makes the request's own body the input:

` + "```yaml" + `
headstart.dev/input: body
` + "```" + `

While the function is cold, the body flows to the node of the starting instance, and is in that node's buffer when the function is
ready. No store is needed. Requests without a body have no input, and once the
function is hot its requests go straight to the instance.`

	storeMeaning = `names the operator's store that the input is read from. If the
function has an input, the store must exist and be of the input's kind. On Kubernetes the store must also be granted to the function's
namespace.`

	inputLimitMeaning = "is the size of the largest object that is fetched. A larger one fails the request with `InputTooLarge`" + `
(413), and so does a larger body that is the input, as long as the function is cold. The bound of 5Gi is the largest object that S3
accepts in one PUT. Over 100 Mbit/s it takes 430 s, which still fits the longest request timeout. A fraction of a byte is refused: ` + "`512m`" + ` is half a byte in Kubernetes' syntax,
and probably meant as ` + "`512Mi` or `512M`" + `.`

	scaleToZeroMeaning = `is how long the function's instance stays idle before it is stopped. On Kubernetes Headstart scales only
Services with this annotation to zero and back, through the scale subresource of the Deployment or
StatefulSet behind them, and none that an autoscaler (HorizontalPodAutoscaler, KEDA) scales. The default applies to the embedded
platform. Knative's own autoscaler scales Knative Services, and the annotation has no effect there.`

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

The input's template sees the event's headers. The stream's keyspace must be in the store's list.`

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

	readByMeaning = `says how a job's program reads its input. With ` + "`file`" + ` it starts when the file is there, complete.
With ` + "`socket`" + ` it starts at once, finds no file, and reads the input by its [socket](socket.md#reading-an-input) while that arrives.`
)
