package s3proxy

import (
	"cmp"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Operation is what a request asks for, in the words of S3's API.
type Operation struct {
	Name        string
	Bucket, Key string
	// Writes: it changes the bucket.
	Writes bool
	// From is the bucket that it copies from, empty for none, and FromKey the object in it.
	From, FromKey string
}

// operation is a row of the API.
type operation struct {
	name   string
	method string
	object bool // it has a key
	// needs are the query's parameters by which it is told from others, and may those that it can have besides.
	needs, may []string
	// copies: it has the header x-amz-copy-source.
	copies, writes bool
}

// operations are all that functions can do. Those that have more needs come before those that have fewer. What is not here
// is the operator's: making and removing buckets, their policies and configurations, access lists, locks.
var operations = []operation{
	{name: "GetObject", method: http.MethodGet, object: true, may: []string{"versionId", "partNumber", "response-cache-control",
		"response-content-disposition", "response-content-encoding", "response-content-language", "response-content-type", "response-expires"}},
	{name: "GetObjectAttributes", method: http.MethodGet, object: true, needs: []string{"attributes"}, may: []string{"versionId"}},
	{name: "GetObjectTagging", method: http.MethodGet, object: true, needs: []string{"tagging"}, may: []string{"versionId"}},
	{name: "ListParts", method: http.MethodGet, object: true, needs: []string{"uploadId"}, may: []string{"max-parts", "part-number-marker", "encoding-type"}},
	{name: "HeadObject", method: http.MethodHead, object: true, may: []string{"versionId", "partNumber", "response-cache-control",
		"response-content-disposition", "response-content-encoding", "response-content-language", "response-content-type", "response-expires"}},
	{name: "CopyObject", method: http.MethodPut, object: true, copies: true, writes: true},
	{name: "PutObject", method: http.MethodPut, object: true, writes: true},
	{name: "UploadPartCopy", method: http.MethodPut, object: true, needs: []string{"partNumber", "uploadId"}, copies: true, writes: true},
	{name: "UploadPart", method: http.MethodPut, object: true, needs: []string{"partNumber", "uploadId"}, writes: true},
	{name: "PutObjectTagging", method: http.MethodPut, object: true, needs: []string{"tagging"}, may: []string{"versionId"}, writes: true},
	{name: "CreateMultipartUpload", method: http.MethodPost, object: true, needs: []string{"uploads"}, writes: true},
	{name: "CompleteMultipartUpload", method: http.MethodPost, object: true, needs: []string{"uploadId"}, writes: true},
	{name: "AbortMultipartUpload", method: http.MethodDelete, object: true, needs: []string{"uploadId"}, writes: true},
	{name: "DeleteObjectTagging", method: http.MethodDelete, object: true, needs: []string{"tagging"}, may: []string{"versionId"}, writes: true},
	{name: "DeleteObject", method: http.MethodDelete, object: true, may: []string{"versionId"}, writes: true},
	{name: "ListObjectsV2", method: http.MethodGet, needs: []string{"list-type"}, may: []string{"prefix", "delimiter", "max-keys",
		"continuation-token", "start-after", "fetch-owner", "encoding-type"}},
	{name: "ListObjectVersions", method: http.MethodGet, needs: []string{"versions"}, may: []string{"prefix", "delimiter", "max-keys",
		"key-marker", "version-id-marker", "encoding-type"}},
	{name: "ListMultipartUploads", method: http.MethodGet, needs: []string{"uploads"}, may: []string{"prefix", "delimiter", "max-uploads",
		"key-marker", "upload-id-marker", "encoding-type"}},
	{name: "GetBucketLocation", method: http.MethodGet, needs: []string{"location"}},
	{name: "GetBucketVersioning", method: http.MethodGet, needs: []string{"versioning"}},
	{name: "ListObjects", method: http.MethodGet, may: []string{"prefix", "delimiter", "max-keys", "marker", "encoding-type"}},
	{name: "HeadBucket", method: http.MethodHead},
	{name: "DeleteObjects", method: http.MethodPost, needs: []string{"delete"}, writes: true},
}

// common are parameters that say nothing about what is asked for.
var common = []string{"x-id"}

// privileges are headers that give others access, or take what the bucket's owner protects.
var privileges = []string{"X-Amz-Grant-Full-Control", "X-Amz-Grant-Read", "X-Amz-Grant-Read-Acp", "X-Amz-Grant-Write",
	"X-Amz-Grant-Write-Acp", "X-Amz-Bypass-Governance-Retention", "X-Amz-Object-Lock-Mode",
	"X-Amz-Object-Lock-Retain-Until-Date", "X-Amz-Object-Lock-Legal-Hold"}

// listBuckets is the only operation without a bucket.
var listBuckets = operation{name: "ListBuckets", method: http.MethodGet, may: []string{"prefix", "max-buckets",
	"continuation-token", "bucket-region"}}

// parse returns what a request asks for, or a *refusal. query is without the parameters of a signature.
func parse(r *http.Request, query url.Values) (op Operation, _ error) {
	plain := strings.TrimPrefix(r.URL.Path, "/")
	op.Bucket, op.Key, _ = strings.Cut(plain, "/")
	// The store takes apart what is escaped.
	escaped, _, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	copied := r.Header["X-Amz-Copy-Source"]
	switch {
	case plain == "" && r.Method == listBuckets.method && len(copied) == 0 && listBuckets.takes(query):
		op.Name = listBuckets.name
		return op, nil
	case op.Bucket == "":
		return op, notImplemented(r)
	case escaped != op.Bucket:
		return op, refuse(http.StatusBadRequest, "InvalidURI", "the path is not /<bucket>/<key> with a plain bucket")
	case leaves(op.Key):
		return op, refuse(http.StatusBadRequest, "InvalidURI", "the key leads out of the bucket by the segment \"..\"")
	}
	i := slices.IndexFunc(operations, func(o operation) bool {
		return o.method == r.Method && o.object == (op.Key != "") && o.copies == (len(copied) > 0) && o.takes(query)
	})
	if i < 0 {
		return op, notImplemented(r)
	}
	op.Name, op.Writes = operations[i].name, operations[i].writes
	for _, name := range []string{"uploadId", "versionId"} {
		if dotted(query.Get(name)) {
			return op, refuse(http.StatusBadRequest, "InvalidArgument", "the parameter "+name+" is no id of the store's")
		}
	}
	if len(copied) > 0 {
		from, key, ok := copiedFrom(copied[0])
		if !ok || len(copied) > 1 {
			return op, refuse(http.StatusBadRequest, "InvalidArgument",
				"the header x-amz-copy-source is not <bucket>/<key>, once")
		}
		op.From, op.FromKey = from, key
	}
	for _, name := range privileges {
		if strings.Join(r.Header[name], "") != "" {
			return op, refuse(http.StatusForbidden, "AccessDenied", "the header "+strings.ToLower(name)+
				" is for the bucket's owner; functions cannot use it")
		}
	}
	for _, acl := range r.Header["X-Amz-Acl"] {
		if acl != "" && acl != "private" && acl != "bucket-owner-full-control" {
			return op, refuse(http.StatusForbidden, "AccessDenied", "the header x-amz-acl would give others access; "+
				"functions can use private and bucket-owner-full-control only")
		}
	}
	return op, nil
}

// takes tells whether the operation is what a query asks for. No operation has a parameter twice: the store may take
// another value than the node.
func (o operation) takes(query url.Values) bool {
	for _, need := range o.needs {
		if !query.Has(need) {
			return false
		}
	}
	for name, values := range query {
		known := slices.Contains(o.needs, name) || slices.Contains(o.may, name) || slices.Contains(common, name)
		if !known || len(values) > 1 {
			return false
		}
	}
	return true
}

// leaves tells whether a key would be in another bucket if the store, or something before it, takes it for a path: stores
// on file systems do so.
func leaves(key string) bool {
	clean := path.Clean("./" + key)
	return clean == ".." || strings.HasPrefix(clean, "../")
}

// dotted tells whether the id of an upload or a version would lead elsewhere as a path. Ids are the store's, and none is
// of this kind.
func dotted(id string) bool {
	return slices.ContainsFunc(strings.Split(id, "/"), func(s string) bool { return s == "." || s == ".." })
}

// copiedFrom is the object in a value of x-amz-copy-source. An access point's ARN is no bucket.
func copiedFrom(value string) (bucket, key string, ok bool) {
	escaped, parameters, _ := strings.Cut(strings.TrimPrefix(value, "/"), "?")
	plain, err := url.PathUnescape(escaped)
	versions, err2 := url.ParseQuery(parameters)
	if cmp.Or(err, err2) != nil {
		return "", "", false
	}
	for _, ids := range versions {
		if slices.ContainsFunc(ids, dotted) {
			return "", "", false
		}
	}
	bucket, key, ok = strings.Cut(plain, "/")
	return bucket, key, ok && bucket != "" && key != "" && !strings.Contains(bucket, ":") && !leaves(key)
}

func notImplemented(r *http.Request) error {
	return refuse(http.StatusNotImplemented, "NotImplemented",
		"functions cannot do this by S3 on the node ("+r.Method+" with these parameters); ask the operator")
}
