package s3proxy

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
	"github.com/headstart-mesh/headstart/shim/writeback"
)

// handler answers on one sandbox's endpoint.
type handler struct {
	server  *Server
	sandbox *sandbox
}

// request is one of a sandbox's.
type request struct {
	*http.Request
	Operation
	signed   *sigv4.Signed
	function string
	store    Store
	rule     objects.Rule
	settled  bool // the store has what was acknowledged of the object before: it was waited for
	// query is without the parameters of a signature.
	query url.Values
}

const (
	// resultPassed is the result of a request that the store has answered.
	resultPassed = "passed"
	// resultBehind is that of a write that the store does not have yet.
	resultBehind = "behind"
)

// answer is how a request was answered, for metrics and its span.
type answer struct {
	result string
	bytes  int64
}

// midway is an error after the answer's head.
type midway struct{ error }

func (e midway) Unwrap() error { return e.error }

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == credentialsPath {
		h.answerCredentials(w, r)
		return
	}
	e, broke := h.do(w, r, h.admit)
	if broke {
		panic(http.ErrAbortHandler) // the only way to tell that the answer is not whole
	}
	if e != nil {
		e.write(w, r)
	}
}

// do does what a request asks for, once it is admitted, and counts it. What it returns is to be told; broke: after the
// answer's head.
func (h *handler) do(w http.ResponseWriter, r *http.Request, admit func(*http.Request) (*request, error)) (
	e *refusal, broke bool,
) {
	m := h.server.config.Metrics
	m.inFlight.Inc()
	defer m.inFlight.Dec()
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	if !trace.SpanContextFromContext(ctx).IsValid() { // few SDKs say it
		ctx = tracing.Continue(ctx, h.server.config.Traceparent(h.sandbox.id))
	}
	ctx, span := tracer.Start(ctx, tracing.S3, trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	req, err := admit(r.WithContext(ctx))
	var a answer
	if err == nil {
		a, err = h.answer(w, req)
	}
	_, broke = errors.AsType[midway](err)
	if err != nil {
		e = refusalOf(err)
		a.result = e.code
		level := slog.LevelDebug
		if (e.code == codeInternal || e.code == codeUnavailable) && !broke && r.Context().Err() == nil {
			level = slog.LevelWarn // the answer says that the log has more
		}
		h.server.config.Log.Log(ctx, level, "a function's request to S3 fails", "instance", h.sandbox.id,
			"operation", req.Name, "code", e.code, "error", err)
		span.SetStatus(codes.Error, e.code)
	}
	span.SetAttributes(attribute.String("rpc.system.name", "aws-api"), attribute.String("rpc.method", "S3/"+req.Name),
		attribute.String("aws.s3.bucket", req.Bucket),
		tracing.Instance.String(h.sandbox.id), tracing.InputWay.String(a.result), tracing.InputBytes.Int64(a.bytes))
	m.requests.WithLabelValues(h.sandbox.Store, req.Name, a.result).Inc()
	direction := "read"
	if req.Writes {
		direction = "written"
	}
	m.bytes.WithLabelValues(h.sandbox.Store, direction).Add(float64(a.bytes))
	return e, broke
}

// admit finds out who asks for what, and whether it may.
func (h *handler) admit(r *http.Request) (req *request, err error) {
	req = h.request(r)
	expired := false
	req.signed, err = sigv4.Verify(r, time.Now(), func(id string) (secret, token string, known bool) {
		secret, token, known, expired = h.sandbox.secret(id, time.Now())
		return secret, token, known && !expired
	})
	switch {
	case expired:
		return req, refuse(http.StatusBadRequest, "ExpiredToken", "the credentials have ended; have the SDK find them again")
	case err != nil:
		return req, err
	}
	if req.query, err = parameters(r, req.signed.Presigned); err != nil {
		return req, err
	}
	return req, h.allow(req)
}

// request is one that comes from the sandbox.
func (h *handler) request(r *http.Request) *request {
	h.sandbox.asked.Store(true)
	return &request{Request: r, function: h.server.function(h.sandbox)}
}

// allow finds out what is asked for, and whether the sandbox may.
func (h *handler) allow(req *request) (err error) {
	if req.Operation, err = parse(req.Request, req.query); err != nil {
		return err
	}
	h.server.config.Await(req.Context())
	if req.store, err = h.server.config.Store(req.function, h.sandbox.Store); err != nil {
		return err
	}
	if req.Bucket == "" {
		return nil
	}
	for _, bucket := range []string{req.Bucket, req.From} {
		if bucket != "" && !slices.Contains(req.store.Buckets(), bucket) {
			return refuse(http.StatusForbidden, "AccessDenied", "the operator does not list bucket "+bucket+
				" in store "+h.sandbox.Store+"; ask the operator to add it to the store's buckets")
		}
	}
	req.rule = h.server.config.Rule(h.sandbox.Store, req.Bucket)
	if writeback.IsOwn(req.Key) && req.rule.Pending ||
		writeback.IsOwn(req.FromKey) && h.server.config.Rule(h.sandbox.Store, req.From).Pending {
		return refuseOwn
	}
	if req.Writes && req.rule.Write == "" {
		return refuse(http.StatusForbidden, "AccessDenied", "functions only read bucket "+req.Bucket+" of store "+
			h.sandbox.Store+"; ask the operator to name it in the store's write")
	}
	return nil
}

// signatures are the parameters of a presigned URL that are the signature's.
var signatures = []string{"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders",
	"X-Amz-Signature", "X-Amz-Security-Token", "X-Amz-Content-Sha256"}

// notHeaders begin parameters of presigned URLs that S3 does not take for headers, or that are of the signature.
var notHeaders = []string{"x-amz-checksum-", "x-amz-sdk-", "x-amz-content-sha256"}

// parameters returns a request's query without the parameters of a signature. S3 takes a semicolon as a character like
// others. Parameters of a presigned URL that stand for headers become headers.
func parameters(r *http.Request, presigned bool) (url.Values, error) {
	query, err := url.ParseQuery(strings.ReplaceAll(r.URL.RawQuery, ";", "%3B"))
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "InvalidURI",
			"the query is not percent-encoded, or has too many parameters")
	}
	for name, values := range query {
		switch lower := strings.ToLower(name); {
		case slices.Contains(signatures, name):
			delete(query, name)
		case presigned && strings.HasPrefix(lower, "x-amz-"):
			delete(query, name)
			not := slices.ContainsFunc(notHeaders, func(n string) bool { return strings.HasPrefix(lower, n) })
			if header := http.CanonicalHeaderKey(name); !not && r.Header[header] == nil {
				r.Header[header] = values
			}
		}
	}
	return query, nil
}

// answer answers what the node can, and passes on all else.
func (h *handler) answer(w http.ResponseWriter, r *request) (answer, error) {
	switch r.Name {
	case "ListBuckets":
		return answer{result: resultPassed}, h.listBuckets(w, r)
	case "GetObject":
		return h.get(w, r)
	case "HeadObject":
		return h.head(w, r)
	case "PutObject":
		if r.rule.Write == stores.WriteBack {
			return h.putBehind(w, r)
		}
		return h.putThrough(w, r)
	case "UploadPart":
		return h.part(w, r)
	case "UploadPartCopy", "AbortMultipartUpload":
		return h.pass(w, r, func(*http.Response, bool) { h.server.uploads.forget(h.upload(r)) })
	case "CompleteMultipartUpload":
		return h.complete(w, r)
	case "CopyObject", "DeleteObject":
		a, err := h.pass(w, r, func(*http.Response, bool) { h.changed(r, r.Key) })
		h.changed(r, r.Key) // again: S3 begins to answer a copy before it is made
		return a, err
	case "DeleteObjects":
		return h.deleteMany(w, r)
	case "ListObjectsV2", "ListObjects", "ListObjectVersions", "ListMultipartUploads":
		return h.list(w, r)
	}
	return h.pass(w, r, func(*http.Response, bool) {})
}

// reference is how the node names an object, empty if it cannot.
func (r *request) reference(key string) string {
	ref := source.SchemeS3 + "://" + r.Bucket + "/" + key
	if _, err := source.ParseReference(ref); err != nil {
		return ""
	}
	return ref
}

// changed has nobody find what the node has of an object that has been changed, or may have been.
func (h *handler) changed(r *request, key string) {
	if ref := r.reference(key); ref != "" {
		h.server.config.Objects.Changed(r.function, h.sandbox.Store, r.Bucket, ref)
	}
}
