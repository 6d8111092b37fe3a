package sdks

import (
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Cases are all cases, in the order in which they run.
var Cases = slices.Concat([]Case{
	{Name: "empty object", run: whole("empty")},
	{Name: "object of 1 KiB", run: whole("1KiB")},
	{Name: "object of 5 MiB", run: whole("5MiB")},
	{Name: "object of 20 MiB in parts", run: func(a *attempt) {
		k := a.key("transfer")
		a.do("Upload", M{"Key": k, "Body": "20MiB"}, ok)
		a.do("HeadObject", M{"Key": k}, M{"ContentLength": 20 << 20})
		a.do("Download", M{"Key": k}, M{"sha256": digest(content("20MiB"))})
		const first, last = 5<<20 - 100, 8<<20 + 100 // over the parts' bounds, be they of 5 or 8 MiB
		a.do("GetObject", M{"Key": k, "Range": fmt.Sprintf("bytes=%d-%d", first, last)}, M{
			"sha256":       digest(content("20MiB")[first : last+1]),
			"ContentRange": fmt.Sprintf("bytes %d-%d/%d", first, last, 20<<20)})
	}},
	{Name: "stream that cannot seek", run: func(a *attempt) {
		for _, name := range []string{"1KiB", "20MiB"} {
			k := a.key("stream" + name)
			a.do("UploadStream", M{"Key": k, "Body": name}, ok)
			a.do("Download", M{"Key": k}, M{"sha256": digest(content(name))})
		}
	}},
	{Name: "body in chunks with a trailer", Cannot: except(noChunks, Boto3, CLI, Go), run: func(a *attempt) {
		for _, name := range []string{"empty", "1KiB", "5MiB"} {
			k := a.key("chunks" + name)
			a.do("PutStream", M{"Key": k, "Body": name, "ContentEncoding": "gzip"}, ok)
			a.do("GetObject", M{"Key": k}, object(name)) // versitygw adds aws-chunked to its encoding
		}
	}},
	{Name: "unsigned body", run: func(a *attempt) {
		k := a.key("unsigned")
		a.do("PutObject", M{"Key": k, "Body": "5MiB", "Unsigned": true}, M{"ETag": etag(content("5MiB"))})
		a.do("GetObject", M{"Key": k}, object("5MiB"))
	}},
	{Name: "metadata", run: func(a *attempt) {
		k := a.key("metadata")
		about := M{"ContentType": "video/x-motion-jpeg", "CacheControl": "max-age=60, private", "ContentLanguage": "de",
			"ContentEncoding": "gzip", "ContentDisposition": `attachment; filename="a b.mjpeg"`,
			"Metadata": M{"camera": "7", "taken-at": "night,  late", "x": "a=b;c"}}
		a.do("PutObject", with(about, M{"Key": k, "Body": "1KiB"}), ok)
		a.do("GetObject", M{"Key": k}, with(about, object("1KiB")))
		a.do("HeadObject", M{"Key": k}, with(about, head("1KiB")))
		a.do("CopyObject", M{"Key": k + "2", "CopySource": a.copySource(k)}, ok)
		a.do("HeadObject", M{"Key": k + "2"}, with(about, head("1KiB")))
		other := M{"ContentType": "text/plain", "Metadata": M{"camera": "8"}}
		a.do("CopyObject", with(other, M{"Key": k, "CopySource": a.copySource(k), "MetadataDirective": "REPLACE"}), ok)
		a.do("HeadObject", M{"Key": k}, with(other, head("1KiB")))
	}},
	{Name: "headers that the request asks for", run: func(a *attempt) {
		k := a.stored("overridden", "1KiB")
		other := M{"ContentType": "text/plain", "CacheControl": "no-store", "ContentDisposition": "inline"}
		in := M{"Key": k}
		for name, value := range other {
			in["Response"+name] = value
		}
		a.do("GetObject", in, with(other, object("1KiB")))
	}},
	{Name: "attributes", run: func(a *attempt) {
		k := a.stored("attributes", "1KiB")
		// One at a time: versitygw takes no spaces in the list, which JS writes.
		a.do("GetObjectAttributes", M{"Key": k, "ObjectAttributes": []string{"ObjectSize"}}, M{"ObjectSize": 1 << 10})
		a.do("GetObjectAttributes", M{"Key": k, "ObjectAttributes": []string{"ETag"}},
			M{"ETag": strings.Trim(etag(content("1KiB")), `"`)})
	}},
	{Name: "conditional GET", run: func(a *attempt) {
		k := a.stored("conditional", "1KiB")
		tag, past := etag(content("1KiB")), "2001-01-01T00:00:00Z"
		modified := a.secondAfter(a.do("HeadObject", M{"Key": k, "IfMatch": tag}, head("1KiB"))["LastModified"])
		a.do("GetObject", M{"Key": k, "IfNoneMatch": tag}, "304")
		a.do("GetObject", M{"Key": k, "IfNoneMatch": `"other"`}, object("1KiB"))
		a.do("GetObject", M{"Key": k, "IfMatch": tag}, object("1KiB"))
		a.do("GetObject", M{"Key": k, "IfMatch": `"other"`}, "412 PreconditionFailed")
		a.do("GetObject", M{"Key": k, "IfModifiedSince": modified}, "304")
		a.do("GetObject", M{"Key": k, "IfModifiedSince": past}, object("1KiB"))
		a.do("GetObject", M{"Key": k, "IfUnmodifiedSince": modified}, object("1KiB"))
		a.do("GetObject", M{"Key": k, "IfUnmodifiedSince": past}, "412 PreconditionFailed")
		a.do("GetObject", M{"Key": k, "IfMatch": tag, "Range": "bytes=0-9"}, M{"ContentRange": "bytes 0-9/1024"})
		a.do("HeadObject", M{"Key": k, "IfNoneMatch": tag}, "304")
		a.do("HeadObject", M{"Key": k, "IfMatch": `"other"`}, "412")
	}},
	{Name: "conditional PUT", run: func(a *attempt) {
		k, tag := a.key("once"), etag(content("1KiB"))
		a.do("PutObject", M{"Key": k, "Body": "1KiB", "IfNoneMatch": "*"}, M{"ETag": tag})
		a.do("PutObject", M{"Key": k, "Body": "v2", "IfNoneMatch": "*"}, "412 PreconditionFailed")
		a.do("GetObject", M{"Key": k}, object("1KiB"))
		a.do("PutObject", M{"Key": k, "Body": "v2", "IfMatch": `"other"`}, "412 PreconditionFailed")
		a.do("PutObject", M{"Key": k, "Body": "v2", "IfMatch": tag}, M{"ETag": etag(content("v2"))})
		a.do("PutObject", M{"Key": k + "none", "Body": "v2", "IfMatch": tag}, "404 NoSuchKey")
		a.do("GetObject", M{"Key": k}, object("v2"))
	}},
	// All clients send such a body only after 100 Continue.
	{Name: "large body that is refused", run: func(a *attempt) {
		k := a.stored("refused", "1KiB")
		a.do("PutObject", M{"Key": k, "Body": "5MiB", "IfNoneMatch": "*"}, "412 PreconditionFailed")
		a.do("GetObject", M{"Key": k}, object("1KiB"))
	}},
	{Name: "default checksum", run: func(a *attempt) {
		k := a.stored("checksum", "1KiB")
		sum := M{"ChecksumCRC32": sumOf(crc32.NewIEEE(), "1KiB")}
		a.do("HeadObject", M{"Key": k, "ChecksumMode": "ENABLED"}, sum)
		a.do("GetObject", M{"Key": k, "ChecksumMode": "ENABLED"}, with(sum, object("1KiB")))
	}},
	{Name: "named checksum", run: func(a *attempt) {
		for name, sum := range checksums("1KiB") {
			k := a.key("checksum" + name)
			a.do("PutObject", M{"Key": k, "Body": "1KiB", name: sum}, M{name: sum})
			a.do("HeadObject", M{"Key": k, "ChecksumMode": "ENABLED"}, M{name: sum})
		}
		k := a.key("checksumAlgorithm")
		sum := M{"ChecksumSHA256": sumOf(sha256.New(), "5MiB")}
		a.do("PutObject", M{"Key": k, "Body": "5MiB", "ChecksumAlgorithm": "SHA256"}, sum)
		a.do("HeadObject", M{"Key": k, "ChecksumMode": "ENABLED"}, sum)
	}},
	{Name: "wrong checksum", run: func(a *attempt) {
		k := a.key("wrong")
		for name, sum := range checksums("v2") {
			a.do("PutObject", M{"Key": k, "Body": "1KiB", name: sum}, "400 BadDigest")
		}
		a.do("PutObject", M{"Key": k, "Body": "1KiB", "ContentMD5": sumOf(md5.New(), "v2")}, "400 BadDigest")
		a.do("GetObject", M{"Key": k}, "404 NoSuchKey")
		a.do("PutObject", M{"Key": k, "Body": "1KiB", "ContentMD5": sumOf(md5.New(), "1KiB")}, ok)
		a.do("GetObject", M{"Key": k}, object("1KiB"))
	}},
	{Name: "copy", run: func(a *attempt) {
		for _, name := range []string{"from", "from/odd +&%20ü"} {
			from := a.stored(name, "5MiB")
			a.do("CopyObject", M{"Key": a.key("to"), "CopySource": a.copySource(from)},
				M{"CopyObjectResult": M{"ETag": etag(content("5MiB"))}})
			a.do("GetObject", M{"Key": a.key("to")}, object("5MiB"))
			a.do("DeleteObject", M{"Key": from}, ok)
		}
		a.do("CopyObject", M{"Key": a.key("to"), "CopySource": a.copySource(a.key("no such"))}, "404 NoSuchKey")
	}},
	{Name: "no such key", run: func(a *attempt) {
		k := a.key("no such")
		a.do("GetObject", M{"Key": k}, "404 NoSuchKey")
		a.do("GetObject", M{"Key": k, "Range": "bytes=0-1"}, "404 NoSuchKey")
		a.do("HeadObject", M{"Key": k}, "404")
		a.do("DeleteObject", M{"Key": k}, ok)
	}},
	{Name: "delete", run: func(a *attempt) {
		k := a.stored("deleted", "1KiB")
		a.do("GetObject", M{"Key": k}, object("1KiB"))
		a.do("DeleteObject", M{"Key": k}, ok)
		a.do("GetObject", M{"Key": k}, "404 NoSuchKey")
		a.do("HeadObject", M{"Key": k}, "404")
	}},
	{Name: "delete several", run: func(a *attempt) {
		var objects []M
		for _, name := range []string{"several/1", "several/ü &<2>", "several/3"} {
			objects = append(objects, M{"Key": a.stored(name, "1KiB")})
		}
		kept := a.stored("several/kept", "1KiB")
		a.do("DeleteObjects", M{"Delete": M{"Objects": objects[:2]}},
			M{"Deleted": []M{{"Key": "several/1"}, {"Key": "several/ü &<2>"}}})
		a.do("DeleteObjects", M{"Delete": M{"Objects": objects, "Quiet": true}}, ok)
		a.do("GetObject", M{"Key": a.key("several/3")}, "404 NoSuchKey")
		a.do("GetObject", M{"Key": kept}, object("1KiB"))
	}},
	{Name: "list", run: func(a *attempt) {
		for _, name := range []string{"list/c", "list/b/2", "list/a", "list/b/1"} {
			a.stored(name, "1KiB")
		}
		prefix := a.key("list/")
		a.do("ListObjectsV2", M{"Prefix": prefix}, entries("list/a", "list/b/1", "list/b/2", "list/c"))
		directory := with(entries("list/a", "list/c"), M{"CommonPrefixes": []M{{"Prefix": "list/b/"}}})
		a.do("ListObjectsV2", M{"Prefix": prefix, "Delimiter": "/"}, directory)
		a.do("ListObjectsV2", M{"Prefix": prefix, "StartAfter": prefix + "b/1"}, entries("list/b/2", "list/c"))
		page := a.do("ListObjectsV2", M{"Prefix": prefix, "MaxKeys": 2},
			with(entries("list/a", "list/b/1"), M{"IsTruncated": true}))
		a.do("ListObjectsV2", M{"Prefix": prefix, "MaxKeys": 2, "ContinuationToken": page["NextContinuationToken"]},
			with(entries("list/b/2", "list/c"), M{"IsTruncated": false}))
		a.do("ListObjectsV2", M{"Prefix": prefix + "none/"}, ok)
		a.do("ListObjects", M{"Prefix": prefix}, entries("list/a", "list/b/1", "list/b/2", "list/c"))
		a.do("ListObjects", M{"Prefix": prefix, "Delimiter": "/"}, directory)
		a.do("ListObjects", M{"Prefix": prefix, "MaxKeys": 2, "Marker": prefix + "a"}, entries("list/b/1", "list/b/2"))
	}},
	{Name: "multipart upload by hand", run: func(a *attempt) {
		k := a.key("parts")
		about := M{"ContentType": "video/x-motion-jpeg", "Metadata": M{"camera": "7"}}
		id := a.do("CreateMultipartUpload", with(about, M{"Key": k}), ok)["UploadId"]
		upload := M{"Key": k, "UploadId": id}
		parts := []M{{"PartNumber": 1}, {"PartNumber": 2}}
		sums := []byte{}
		for i, name := range []string{"5MiB", "1KiB"} {
			parts[i]["ETag"] = etag(content(name))
			sum := md5.Sum(content(name))
			sums = append(sums, sum[:]...)
			a.do("UploadPart", with(upload, M{"PartNumber": i + 1, "Body": name}), M{"ETag": parts[i]["ETag"]})
		}
		a.do("ListParts", upload, M{"Parts": parts})
		a.do("ListParts", with(upload, M{"MaxParts": 1}), M{"Parts": parts[:1], "IsTruncated": true})
		a.do("ListMultipartUploads", M{"Prefix": k}, M{"Uploads": []M{{"Key": "parts"}}})
		tag := M{"ETag": strings.TrimSuffix(etag(sums), `"`) + `-2"`}
		a.do("CompleteMultipartUpload", with(upload, M{"MultipartUpload": M{"Parts": parts}}), tag)
		data := slices.Concat(content("5MiB"), content("1KiB"))
		whole := with(about, with(tag, M{"ContentLength": len(data)}))
		a.do("HeadObject", M{"Key": k}, whole)
		a.do("GetObject", M{"Key": k}, with(whole, M{"sha256": digest(data)}))
		a.do("GetObject", M{"Key": k, "PartNumber": 2}, M{"sha256": digest(content("1KiB")), "PartsCount": 2})
		a.do("ListParts", upload, "404 NoSuchUpload")
	}},
	{Name: "multipart upload that fails", run: func(a *attempt) {
		k := a.key("broken")
		upload := M{"Key": k, "UploadId": a.do("CreateMultipartUpload", M{"Key": k}, ok)["UploadId"]}
		var parts []M
		for i := range 2 {
			a.do("UploadPart", with(upload, M{"PartNumber": i + 1, "Body": "1KiB"}), ok)
			parts = append(parts, M{"PartNumber": i + 1, "ETag": etag(content("1KiB"))})
		}
		complete := func(want any, parts ...M) {
			a.do("CompleteMultipartUpload", with(upload, M{"MultipartUpload": M{"Parts": parts}}), want)
		}
		complete("400 InvalidPart", M{"PartNumber": 1, "ETag": etag(content("v2"))})
		complete("400 InvalidPart", M{"PartNumber": 7, "ETag": etag(content("1KiB"))})
		complete(nil, parts[1], parts[0]) // in the wrong order, and too small
		complete("400 EntityTooSmall", parts...)
		a.do("AbortMultipartUpload", upload, ok)
		a.do("ListParts", upload, "404 NoSuchUpload")
		a.do("UploadPart", with(upload, M{"PartNumber": 1, "Body": "1KiB"}), "404 NoSuchUpload")
		a.do("GetObject", M{"Key": k}, "404 NoSuchKey")
	}},
	{Name: "multipart upload of copied parts", run: func(a *attempt) {
		from, k := a.stored("part", "5MiB"), a.key("copied")
		upload := M{"Key": k, "UploadId": a.do("CreateMultipartUpload", M{"Key": k}, ok)["UploadId"]}
		var parts []M
		for i, bytes := range []string{"bytes=0-5242879", "bytes=1000-1999"} {
			copied := a.do("UploadPartCopy", with(upload,
				M{"PartNumber": i + 1, "CopySource": a.copySource(from), "CopySourceRange": bytes}), ok)
			result, _ := copied["CopyPartResult"].(M)
			parts = append(parts, M{"PartNumber": i + 1, "ETag": result["ETag"]})
		}
		a.do("CompleteMultipartUpload", with(upload, M{"MultipartUpload": M{"Parts": parts}}), ok)
		a.do("GetObject", M{"Key": k}, M{"sha256": digest(slices.Concat(content("5MiB"), content("5MiB")[1000:2000]))})
	}},
	{Name: "tags", run: func(a *attempt) {
		k := a.key("tagged")
		a.do("PutObject", M{"Key": k, "Body": "1KiB", "Tagging": "camera=7"}, ok)
		a.do("GetObjectTagging", M{"Key": k}, M{"TagSet": []M{{"Key": "camera", "Value": "7"}}})
		a.do("PutObjectTagging", M{"Key": k, "Tagging": M{"TagSet": []M{{"Key": "a b", "Value": "ü"}}}}, ok)
		a.do("GetObjectTagging", M{"Key": k}, M{"TagSet": []M{{"Key": "a b", "Value": "ü"}}})
		a.do("GetObject", M{"Key": k}, with(object("1KiB"), M{"TagCount": 1}))
		a.do("DeleteObjectTagging", M{"Key": k}, ok)
		a.do("GetObjectTagging", M{"Key": k}, M{"TagSet": []M{}})
	}},
	{Name: "presigned GET", run: func(a *attempt) {
		k := a.stored("presigned +&ü", "1KiB")
		url, _ := a.do("Presign", M{"Op": "GetObject", "Key": k}, ok)["URL"].(string)
		get := M{"Method": "GET", "URL": url}
		a.do("HTTP", get, M{"sha256": digest(content("1KiB")), "etag": etag(content("1KiB")), "content-length": "1024"})
		a.do("HTTP", with(get, M{"Headers": M{"Range": "bytes=10-19"}}),
			M{"sha256": digest(content("1KiB")[10:20]), "content-range": "bytes 10-19/1024", "status": "206"})
		a.do("HTTP", with(get, M{"Headers": M{"If-None-Match": etag(content("1KiB"))}}), "304")
		a.do("HTTP", M{"Method": "GET", "URL": tampered(url)}, "403 SignatureDoesNotMatch")
		a.do("HTTP", M{"Method": "DELETE", "URL": url}, "403 SignatureDoesNotMatch")
		a.do("HTTP", M{"Method": "GET", "URL": strings.Split(url, "?")[0]}, "403 AccessDenied")
	}},
	{Name: "presigned PUT", Cannot: except("its command presigns GETs only", CLI), run: func(a *attempt) {
		k := a.key("presigned")
		url, _ := a.do("Presign", M{"Op": "PutObject", "Key": k}, ok)["URL"].(string)
		a.do("HTTP", M{"Method": "PUT", "URL": tampered(url), "Body": "1KiB"}, "403 SignatureDoesNotMatch")
		a.do("HTTP", M{"Method": "PUT", "URL": url, "Body": "1KiB"}, M{"etag": etag(content("1KiB"))})
		a.do("GetObject", M{"Key": k}, object("1KiB"))
	}},
	{Name: "read your writes", run: func(a *attempt) {
		k := a.key("written")
		for _, name := range []string{"1KiB", "v2", "5MiB", "1KiB"} {
			a.do("PutObject", M{"Key": k, "Body": name}, ok)
			a.do("GetObject", M{"Key": k}, object(name))
			a.do("HeadObject", M{"Key": k}, head(name))
		}
		a.do("CopyObject", M{"Key": k, "CopySource": a.copySource(a.stored("write", "v2"))}, ok)
		a.do("GetObject", M{"Key": k}, object("v2"))
		a.do("Upload", M{"Key": k, "Body": "20MiB"}, ok)
		a.do("Download", M{"Key": k}, M{"sha256": digest(content("20MiB"))})
	}},
	{Name: "overwritten by another client", run: func(a *attempt) {
		k := a.key("behind")
		for _, name := range []string{"1KiB", "v2", "5MiB"} {
			a.direct(k, name)
			a.do("GetObject", M{"Key": k}, object(name))
			a.do("GetObject", M{"Key": k, "Range": "bytes=0-9"}, M{"sha256": digest(content(name)[:10])})
			a.do("HeadObject", M{"Key": k}, head(name))
		}
		a.direct(k, "v2")
		a.do("GetObject", M{"Key": k, "IfMatch": etag(content("5MiB"))}, "412 PreconditionFailed")
		a.do("GetObject", M{"Key": k, "IfNoneMatch": etag(content("5MiB"))}, object("v2"))
		a.direct(k, "1KiB")
		a.do("Download", M{"Key": k}, M{"sha256": digest(content("1KiB"))})
	}},
	{Name: "200 parallel GETs", Cannot: except("each takes a process; see sync", CLI), run: func(a *attempt) {
		a.do("GetMany", M{"Key": a.stored("many", "1KiB"), "Count": 200}, M{"Counts": M{digest(content("1KiB")): 200}})
	}},
	{Name: "body that is not read to its end", run: func(a *attempt) {
		k := a.stored("partly", "20MiB")
		for range 3 {
			a.do("GetSome", M{"Key": k, "Count": 100_000}, M{"sha256": digest(content("20MiB")[:100_000])})
		}
		a.do("GetObject", M{"Key": k}, object("20MiB"))
	}},
	{Name: "sync", Cannot: except("the SDK has no such command", Boto3, JS, Go), run: syncAll},
	{Name: "the bucket", run: func(a *attempt) {
		a.do("HeadBucket", M{}, ok)
		a.do("GetBucketLocation", M{}, nil)
	}},
	{Name: "bucket that does not exist", run: func(a *attempt) {
		in := M{"Bucket": "no-such-bucket", "Key": "k"}
		a.do("GetObject", in, "404 NoSuchBucket")
		a.do("HeadObject", in, "404")
		a.do("PutObject", with(in, M{"Body": "1KiB"}), "404 NoSuchBucket")
		a.do("ListObjectsV2", M{"Bucket": "no-such-bucket"}, "404 NoSuchBucket")
		a.do("HeadBucket", M{"Bucket": "no-such-bucket"}, "404")
	}},
}, oddKeys(), ranges())

const noChunks = "it sends none over plain HTTP, and over TLS each body is sent so"

// except says why clients cannot send a case's requests.
func except(reason string, clients ...Client) map[Client]string {
	reasons := map[Client]string{}
	for _, c := range clients {
		reasons[c] = reason
	}
	return reasons
}

// with is both maps' fields.
func with(a, b M) M {
	both := M{}
	for _, m := range []M{a, b} {
		for name, value := range m {
			both[name] = value
		}
	}
	return both
}

// stored puts an object and returns its key.
func (a *attempt) stored(name, content string) string {
	a.do("PutObject", M{"Key": a.key(name), "Body": content}, ok)
	return a.key(name)
}

func whole(name string) func(*attempt) {
	return func(a *attempt) {
		k := a.key("whole" + name)
		a.do("PutObject", M{"Key": k, "Body": name}, M{"ETag": etag(content(name))})
		a.do("HeadObject", M{"Key": k}, head(name))
		a.do("GetObject", M{"Key": k}, object(name))
	}
}

// entries are those of a list, objects of 1 KiB.
func entries(names ...string) M {
	contents := []M{}
	for _, name := range names {
		contents = append(contents,
			M{"Key": name, "Size": 1 << 10, "ETag": etag(content("1KiB")), "LastModified": "present"})
	}
	return M{"Contents": contents}
}

// secondAfter is the second after a time, which the clients print differently, once it has passed. versitygw compares
// fractions of seconds, which the header does not have, and ignores times in the future.
func (a *attempt) secondAfter(v any) string {
	text, _ := v.(string)
	for _, layout := range []string{time.RFC3339, http.TimeFormat, "2006-01-02 15:04:05Z07:00"} {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		t = t.Add(time.Second)
		select {
		case <-a.ctx.Done():
		case <-time.After(time.Until(t)):
		}
		return t.UTC().Format(time.RFC3339)
	}
	return text
}

// tampered is a presigned URL with another signature.
func tampered(url string) string {
	before, signature, _ := strings.Cut(url, "X-Amz-Signature=")
	other := "0"
	if strings.HasPrefix(signature, other) {
		other = "1"
	}
	return before + "X-Amz-Signature=" + other + signature[min(1, len(signature)):]
}

// syncAll copies a directory of 200 files to the store and back, with the CLI's own commands.
func syncAll(a *attempt) {
	there, back := filepath.Join(a.dir, "there"), filepath.Join(a.dir, "back")
	old := time.Unix(1e9, 0) // S3 has whole seconds, and what is newer than there is copied again
	for i := range 200 {
		file := filepath.Join(there, fmt.Sprint("d", i%3), fmt.Sprint("f ", i))
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if err == nil {
			err = os.WriteFile(file, fmt.Append(nil, "file ", i), 0o600)
		}
		if err == nil {
			err = os.Chtimes(file, old, old)
		}
		if err != nil {
			a.result.Error = err.Error()
			return
		}
	}
	store, copied := "s3://"+a.env.Bucket+"/"+a.key("sync/"), "s3://"+a.env.Bucket+"/"+a.key("copy/")
	lines := func(count int, args ...string) {
		a.do("Run", M{"Args": append([]string{"s3"}, args...)}, M{"Count": count})
	}
	lines(200, "sync", there, store, "--no-progress")
	lines(0, "sync", there, store, "--no-progress") // all are as new and as large
	lines(200, "ls", store, "--recursive")
	lines(3, "ls", store)
	lines(200, "sync", store, back, "--no-progress")
	lines(0, "sync", store, back, "--no-progress")
	for _, name := range []string{"d0/f 0", "d1/f 199"} {
		data, err := os.ReadFile(filepath.Join(back, name))
		original, _ := os.ReadFile(filepath.Join(there, name)) // written above
		a.record("File", M{"sha256": digest(data), "missing": err != nil}, M{"sha256": digest(original)})
	}
	lines(200, "cp", store, copied, "--recursive", "--no-progress")
	lines(200, "rm", store, "--recursive")
	lines(1, "mv", copied+"d0/f 0", store+"moved", "--no-progress")
	lines(1, "ls", store)
	lines(199, "ls", copied, "--recursive")
}
