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

The word ` + "`body`" + ` says that the input is the request's own body:

` + "```yaml" + `
headstart.dev/input: body
` + "```" + `

A body that comes while the function is cold then flows to the node of its instance while that starts, and is in the buffer
of that node when the function is ready. No store is needed. Requests without a body have no input, and once the
function is hot its requests go straight to it.`

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

The input's template sees the event's headers, which are not encoded here: ` + "`|urldecode`" + ` leaves them. An event has neither path
nor query. The stream's keyspace must be in the store's list.`

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
