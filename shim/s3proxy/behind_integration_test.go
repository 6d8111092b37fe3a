//go:build integration

package s3proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headstart-mesh/headstart/shim/s3proxy/s3proxytest"
)

// stuck holds up the uploads of what is written behind until it is closed.
func stuck(t *testing.T, store *s3proxytest.Store) (free func()) {
	gate := make(chan struct{})
	hold := func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("partNumber") {
			select {
			case <-gate:
			case <-t.Context().Done():
			}
		}
		return false
	}
	store.Before.Store(&hold)
	free = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(free)
	return free
}

// asks calls f, and returns where its outcome comes.
func asks(f func() error) <-chan error {
	out := make(chan error, 1)
	go func() {
		defer close(out) // also if the test has failed
		out <- f()
	}()
	return out
}

// An object that is written behind is there at once on its node, with all that was said of it, and on others once the store
// has it: they wait, and read nothing older.
func TestWhatIsWrittenBehindIsThere(t *testing.T) {
	store := s3proxytest.StartStore(t)
	one := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back"})
	other := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back"})
	direct, a, b := client(t, store.Env()), client(t, one.Pod("default", "a", "")), client(t, other.Pod("default", "b", ""))
	bucket := aws.String(s3proxytest.Bucket)
	put(t, direct, *bucket, "dir/k", []byte("older"))
	free := stuck(t, store)
	want := content(3 << 20)
	out, err := a.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: bucket, Key: aws.String("dir/k"), Body: bytes.NewReader(want),
		ContentType: aws.String("text/x"), Metadata: map[string]string{"camera": "7"}, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32})
	if err != nil || aws.ToString(out.ETag) == "" || aws.ToString(out.ChecksumCRC32) == "" {
		t.Fatalf("%+v, %v", out, err)
	}
	is := func(who string, got *sdk.GetObjectOutput, body []byte) {
		t.Helper()
		if !bytes.Equal(body, want) || got.Metadata["camera"] != "7" || aws.ToString(got.ContentType) != "text/x" ||
			aws.ToString(got.ETag) != aws.ToString(out.ETag) {
			t.Errorf("%s: %d bytes, %v, %v, %v", who, len(body), got.Metadata, aws.ToString(got.ContentType), aws.ToString(got.ETag))
		}
	}
	got, body := get(t, a, *bucket, "dir/k")
	is("the writer", got, body)
	heads := func(who string, c *sdk.Client) {
		t.Helper()
		head, err := c.HeadObject(t.Context(), &sdk.HeadObjectInput{Bucket: bucket, Key: aws.String("dir/k"), ChecksumMode: types.ChecksumModeEnabled})
		if err != nil || aws.ToInt64(head.ContentLength) != int64(len(want)) || aws.ToString(head.ETag) != aws.ToString(out.ETag) ||
			aws.ToString(head.ChecksumCRC32) != aws.ToString(out.ChecksumCRC32) || head.ChecksumType != types.ChecksumTypeFullObject {
			t.Errorf("%s: %+v, %v", who, head, err)
		}
	}
	heads("the writer", a)
	if _, body := get(t, direct, *bucket, "dir/k"); string(body) != "older" {
		t.Fatalf("the store has it already: %d bytes", len(body))
	}

	// What is true only when the store has it.
	var theirs []byte
	reads := asks(func() error { got, theirs = get(t, b, *bucket, "dir/k"); return nil })
	var listed []string
	lists := asks(func() error {
		list, err := b.ListObjectsV2(t.Context(), &sdk.ListObjectsV2Input{Bucket: bucket})
		if err != nil {
			return err
		}
		for _, o := range list.Contents {
			listed = append(listed, fmt.Sprint(aws.ToString(o.Key), " ", aws.ToInt64(o.Size)))
		}
		if int(aws.ToInt32(list.KeyCount)) != len(list.Contents) {
			return fmt.Errorf("the list has %d keys of %d", len(list.Contents), aws.ToInt32(list.KeyCount))
		}
		return nil
	})
	copies := asks(func() error {
		_, err := b.CopyObject(t.Context(), &sdk.CopyObjectInput{Bucket: bucket, Key: aws.String("copy"), CopySource: aws.String(*bucket + "/dir/k")})
		return err
	})
	select {
	case <-reads:
		t.Error("another node has read what it cannot know")
	case <-lists:
		t.Error("another node has listed what it cannot know")
	case <-copies:
		t.Error("another node has copied what it cannot know")
	case <-time.After(time.Second): // a correct node does not answer, however long it is waited for
	}
	free()
	if err := errors.Join(<-reads, <-lists, <-copies); err != nil {
		t.Fatal(err)
	}
	is("another node", got, theirs)
	if !slices.Contains(listed, fmt.Sprint("dir/k ", len(want))) || strings.Contains(strings.Join(listed, " "), ".headstart") {
		t.Errorf("listed as %q", listed)
	}
	for who, c := range map[string]*sdk.Client{"the writer": a, "another node": b, "the store": direct} {
		got, body := get(t, c, *bucket, "dir/k")
		is(who, got, body)
		heads(who, c)
		if _, body := get(t, c, *bucket, "copy"); !bytes.Equal(body, want) {
			t.Errorf("%s: the copy has %d bytes", who, len(body))
		}
	}
}

// Another node of the site reads a large object as soon as its writer has it, while its upload is held up: whether it asks
// the writer itself or the object's owner does, and also if that one may not ask the writer.
func TestAnotherNodeReadsWhatItsWriterHas(t *testing.T) {
	store, site := s3proxytest.StartStore(t), s3proxytest.NewSite(t)
	one := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back", Site: site})
	other := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back", Site: site})
	third := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back", Site: site})
	stranger := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back", Site: site, Stranger: true})
	direct, a, b := client(t, store.Env()), client(t, one.Pod("default", "a", "")), client(t, other.Pod("default", "b", ""))
	bucket, want := s3proxytest.Bucket, content(64<<20+12345)
	for _, owner := range []*s3proxytest.Node{one, other, third, stranger} {
		key := ""
		for i := 0; key == "" || site.Owner("default", key) != owner.Name; i++ {
			key = fmt.Sprint("k", i)
		}
		put(t, direct, bucket, key, []byte("older"))
		free := stuck(t, store)
		out, err := a.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(want),
			Metadata: map[string]string{"camera": "7"}})
		if err != nil {
			t.Fatal(err)
		}
		other.Ways()
		head, err := b.HeadObject(t.Context(), &sdk.HeadObjectInput{Bucket: &bucket, Key: &key})
		if err != nil || aws.ToInt64(head.ContentLength) != int64(len(want)) || aws.ToString(head.ETag) != aws.ToString(out.ETag) {
			t.Errorf("%s: %+v, %v", key, head, err)
		}
		for range 2 {
			began := time.Now()
			got, body := get(t, b, bucket, key)
			t.Logf("%s: %d bytes in %v", key, len(body), time.Since(began))
			if !bytes.Equal(body, want) || got.Metadata["camera"] != "7" || aws.ToString(got.ETag) != aws.ToString(out.ETag) {
				t.Errorf("%s: %d bytes, %v, %v", key, len(body), got.Metadata, aws.ToString(got.ETag))
			}
		}
		if ways := other.Ways(); ways["peer"] != 1 || ways["revalidated"] != 1 {
			t.Errorf("%s: the reader's objects came by %v", key, ways)
		}
		if _, body := get(t, direct, bucket, key); string(body) != "older" {
			t.Errorf("the store has it already: %d bytes", len(body))
		}
		free()
		if _, err := b.ListObjectsV2(t.Context(), &sdk.ListObjectsV2Input{Bucket: &bucket}); err != nil { // which waits
			t.Fatal(err)
		}
		if got, body := get(t, b, bucket, key); !bytes.Equal(body, want) || aws.ToString(got.ETag) != aws.ToString(out.ETag) {
			t.Errorf("%s, from the store: %d bytes, %v", key, len(body), aws.ToString(got.ETag))
		}
	}
}

// What comes after a write is after it on every node: removals, later writes through and behind, and in parts.
func TestWhatFollowsAWriteBehind(t *testing.T) {
	store := s3proxytest.StartStore(t)
	one := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back"})
	other := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back"})
	a, b := client(t, one.Pod("default", "a", "")), client(t, other.Pod("default", "b", ""))
	bucket := s3proxytest.Bucket
	large, small := content(200<<10), []byte("small")
	for name, change := range map[string]func(key string) (want []byte, err error){
		"behind": func(key string) ([]byte, error) {
			_, err := b.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(large[1:])})
			return large[1:], err
		},
		"through": func(key string) ([]byte, error) {
			_, err := b.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(small)})
			return small, err
		},
		"removed": func(key string) ([]byte, error) {
			_, err := b.DeleteObject(t.Context(), &sdk.DeleteObjectInput{Bucket: &bucket, Key: &key})
			return nil, err
		},
		"many removed": func(key string) ([]byte, error) {
			_, err := b.DeleteObjects(t.Context(), &sdk.DeleteObjectsInput{Bucket: &bucket, Delete: &types.Delete{
				Objects: []types.ObjectIdentifier{{Key: aws.String("another")}, {Key: &key}}}})
			return nil, err
		},
		"in parts": func(key string) ([]byte, error) {
			up, err := b.CreateMultipartUpload(t.Context(), &sdk.CreateMultipartUploadInput{Bucket: &bucket, Key: &key})
			if err != nil {
				return nil, err
			}
			part, err := b.UploadPart(t.Context(), &sdk.UploadPartInput{Bucket: &bucket, Key: &key, UploadId: up.UploadId,
				PartNumber: aws.Int32(1), Body: bytes.NewReader(large[2:])})
			if err != nil {
				return nil, err
			}
			_, err = b.CompleteMultipartUpload(t.Context(), &sdk.CompleteMultipartUploadInput{Bucket: &bucket, Key: &key, UploadId: up.UploadId,
				MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{ETag: part.ETag, PartNumber: aws.Int32(1)}}}})
			return large[2:], err
		},
		"if it is new": func(key string) ([]byte, error) {
			_, err := b.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(large[3:]), IfNoneMatch: aws.String("*")})
			if e := smithy.APIError(nil); errors.As(err, &e) && e.ErrorCode() == "PreconditionFailed" {
				err = nil
			}
			return large, err
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			for round := range 5 {
				key := fmt.Sprint(name, "/", round)
				put(t, a, bucket, key, large)
				want, err := change(key)
				if err != nil {
					t.Fatal(err)
				}
				for who, c := range map[string]*sdk.Client{"the first": a, "the second": b} {
					out, err := c.GetObject(t.Context(), &sdk.GetObjectInput{Bucket: &bucket, Key: &key})
					if want == nil {
						if missing := (*types.NoSuchKey)(nil); !errors.As(err, &missing) {
							t.Errorf("%s reads what was removed: %v", who, err)
						}
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					got := new(bytes.Buffer)
					_, err = got.ReadFrom(out.Body)
					if !bytes.Equal(got.Bytes(), want) || err != nil {
						t.Errorf("%s reads %d bytes, not %d: %v", who, got.Len(), len(want), err)
					}
				}
			}
		})
	}
}

// Programs neither see nor touch what nodes note in a bucket.
func TestAttackAProgramTouchesTheNodesOwn(t *testing.T) {
	store := s3proxytest.StartStore(t)
	node := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back"})
	direct, c := client(t, store.Env()), client(t, node.Pod("default", "a", ""))
	bucket, own := aws.String(s3proxytest.Bucket), aws.String(".headstart/pending/other")
	put(t, direct, *bucket, ".headstart/note", []byte("x"))
	put(t, c, *bucket, "k", []byte("x"))
	ctx := t.Context()
	for name, try := range map[string]func() error{
		"put": func() error {
			_, err := c.PutObject(ctx, &sdk.PutObjectInput{Bucket: bucket, Key: own, Body: strings.NewReader("x")})
			return err
		},
		"get": func() error { _, err := c.GetObject(ctx, &sdk.GetObjectInput{Bucket: bucket, Key: own}); return err },
		"delete": func() error {
			_, err := c.DeleteObject(ctx, &sdk.DeleteObjectInput{Bucket: bucket, Key: own})
			return err
		},
		"delete many": func() error {
			_, err := c.DeleteObjects(ctx, &sdk.DeleteObjectsInput{Bucket: bucket, Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: own}}}})
			return err
		},
		"copy": func() error {
			_, err := c.CopyObject(ctx, &sdk.CopyObjectInput{Bucket: bucket, Key: aws.String("copy"), CopySource: aws.String(*bucket + "/" + *own)})
			return err
		},
		"copy there": func() error {
			_, err := c.CopyObject(ctx, &sdk.CopyObjectInput{Bucket: bucket, Key: own, CopySource: aws.String(*bucket + "/k")})
			return err
		},
		"by another path": func() error {
			_, err := c.GetObject(ctx, &sdk.GetObjectInput{Bucket: bucket, Key: aws.String("/.headstart/note")})
			return err
		},
		"where they are": func() error {
			_, err := c.PutObject(ctx, &sdk.PutObjectInput{Bucket: bucket, Key: aws.String(".headstart"), Body: strings.NewReader("x")})
			return err
		},
		"tags": func() error {
			_, err := c.PutObjectTagging(ctx, &sdk.PutObjectTaggingInput{Bucket: bucket, Key: own, Tagging: &types.Tagging{TagSet: []types.Tag{}}})
			return err
		},
		"upload": func() error {
			_, err := c.CreateMultipartUpload(ctx, &sdk.CreateMultipartUploadInput{Bucket: bucket, Key: own})
			return err
		},
	} {
		if e := smithy.APIError(nil); !errors.As(try(), &e) || e.ErrorCode() != "AccessDenied" {
			t.Errorf("%s: %v", name, e)
		}
	}
	for _, in := range []*sdk.ListObjectsV2Input{{}, {Prefix: aws.String(".")}, {Delimiter: aws.String("/")}, {Prefix: aws.String(".headstart/")},
		{EncodingType: types.EncodingTypeUrl}} {
		in.Bucket = bucket
		list, err := c.ListObjectsV2(ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Contents {
			if strings.HasPrefix(aws.ToString(o.Key), ".head") {
				t.Errorf("%+v lists %s", in, aws.ToString(o.Key))
			}
		}
		if len(list.CommonPrefixes) > 0 || int(aws.ToInt32(list.KeyCount)) != len(list.Contents) {
			t.Errorf("%+v: %+v, %d", in, list.CommonPrefixes, aws.ToInt32(list.KeyCount))
		}
	}
}

// Programs neither see nor touch the uploads by which nodes bring what is written behind. Their own are as before.
func TestAttackAProgramTouchesTheNodesUploads(t *testing.T) {
	store := s3proxytest.StartStore(t)
	one := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back"})
	other := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back"})
	direct := client(t, store.Env())
	a, b := client(t, one.Pod("default", "a", "")), client(t, other.Pod("default", "b", ""))
	bucket, want := aws.String(s3proxytest.Bucket), content(100<<10)
	refuse := func(w http.ResponseWriter, r *http.Request) bool {
		refuses := r.URL.Query().Has("partNumber") && strings.HasPrefix(r.URL.Path, "/"+*bucket+"/own/")
		if refuses {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return refuses
	}
	store.Before.Store(&refuse)
	ctx := t.Context()
	for i := range 5 {
		put(t, a, *bucket, fmt.Sprint("own/", i, " ü"), want)
	}
	begin := func(c *sdk.Client, key string) *string {
		up, err := c.CreateMultipartUpload(ctx, &sdk.CreateMultipartUploadInput{Bucket: bucket, Key: &key})
		if err != nil {
			t.Fatal(err)
		}
		return up.UploadId
	}
	theirs := map[string]bool{*begin(a, "own/2 ü"): true, *begin(b, "theirs"): true, *begin(b, "theirs"): true}
	pages := func(c *sdk.Client, in sdk.ListMultipartUploadsInput) (all []types.MultipartUpload) {
		t.Helper()
		in.Bucket = bucket
		for {
			out, err := c.ListMultipartUploads(ctx, &in)
			if err != nil {
				t.Fatal(err)
			}
			if all = append(all, out.Uploads...); !aws.ToBool(out.IsTruncated) {
				return all
			}
			in.KeyMarker = out.NextKeyMarker // versitygw 1.8 does not find the upload that it says comes next
		}
	}
	isOwn := func(u types.MultipartUpload) bool { return !theirs[aws.ToString(u.UploadId)] }
	var own []types.MultipartUpload
	for _, u := range pages(direct, sdk.ListMultipartUploadsInput{}) {
		if isOwn(u) {
			own = append(own, u)
		}
	}
	if len(own) != 5 {
		t.Fatalf("the nodes have %d uploads", len(own))
	}
	completed := func(tag *string) *types.CompletedMultipartUpload {
		return &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{ETag: tag, PartNumber: aws.Int32(1)}}}
	}
	for who, c := range map[string]*sdk.Client{"the writer's node": a, "another node": b} {
		for _, in := range []sdk.ListMultipartUploadsInput{{}, {Prefix: aws.String("")}, {MaxUploads: aws.Int32(1)},
			{EncodingType: types.EncodingTypeUrl}, {MaxUploads: aws.Int32(2)},
			{MaxUploads: aws.Int32(3), EncodingType: types.EncodingTypeUrl}} {
			want := slices.DeleteFunc(pages(direct, in), isOwn)
			if d := cmp.Diff(want, pages(c, in), cmpopts.IgnoreUnexported(types.MultipartUpload{}, types.Initiator{},
				types.Owner{})); d != "" {
				t.Errorf("%s lists others than the programs' (-want +got):\n%s", who, d)
			}
		}
		for _, u := range own {
			for _, id := range []string{aws.ToString(u.UploadId), aws.ToString(u.UploadId) + "/"} {
				for name, try := range map[string]func() error{
					"abort": func() error {
						_, err := c.AbortMultipartUpload(ctx, &sdk.AbortMultipartUploadInput{Bucket: bucket, Key: u.Key, UploadId: &id})
						return err
					},
					"add a part": func() error {
						_, err := c.UploadPart(ctx, &sdk.UploadPartInput{Bucket: bucket, Key: u.Key, UploadId: &id,
							PartNumber: aws.Int32(1), Body: strings.NewReader("x")})
						return err
					},
					"list parts": func() error {
						_, err := c.ListParts(ctx, &sdk.ListPartsInput{Bucket: bucket, Key: u.Key, UploadId: &id})
						return err
					},
					"complete": func() error {
						_, err := c.CompleteMultipartUpload(ctx, &sdk.CompleteMultipartUploadInput{Bucket: bucket, Key: u.Key,
							UploadId: &id, MultipartUpload: completed(aws.String("x"))})
						return err
					},
				} {
					if e := smithy.APIError(nil); !errors.As(try(), &e) || e.ErrorCode() != "NoSuchUpload" ||
						!strings.Contains(e.ErrorMessage(), "of a program's") {
						t.Errorf("%s can %s: %v", who, name, e)
					}
				}
			}
		}
	}
	if left := pages(direct, sdk.ListMultipartUploadsInput{}); len(left) != len(own)+len(theirs) {
		t.Errorf("%d uploads are left", len(left))
	}

	// Programs' own, and then the nodes'.
	for _, u := range pages(b, sdk.ListMultipartUploadsInput{}) {
		if aws.ToString(u.Key) != "theirs" {
			_, err := b.AbortMultipartUpload(ctx, &sdk.AbortMultipartUploadInput{Bucket: bucket, Key: u.Key, UploadId: u.UploadId})
			if err != nil {
				t.Error(err)
			}
			continue
		}
		part, err := a.UploadPart(ctx, &sdk.UploadPartInput{Bucket: bucket, Key: u.Key, UploadId: u.UploadId,
			PartNumber: aws.Int32(1), Body: bytes.NewReader(want)})
		if err != nil {
			t.Fatal(err)
		}
		parts, err := b.ListParts(ctx, &sdk.ListPartsInput{Bucket: bucket, Key: u.Key, UploadId: u.UploadId})
		if err != nil || len(parts.Parts) != 1 {
			t.Errorf("%+v, %v", parts, err)
		}
		if _, err := b.CompleteMultipartUpload(ctx, &sdk.CompleteMultipartUploadInput{Bucket: bucket, Key: u.Key,
			UploadId: u.UploadId, MultipartUpload: completed(part.ETag)}); err != nil {
			t.Error(err)
		}
	}
	store.Before.Store(nil)
	for _, u := range own {
		if _, got := get(t, b, *bucket, aws.ToString(u.Key)); !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes", aws.ToString(u.Key), len(got))
		}
	}
	if left := pages(direct, sdk.ListMultipartUploadsInput{}); len(left) > 0 {
		t.Errorf("%+v are left", left)
	}
}

// A body that is not what its checksum says is written nowhere.
func TestAWrongBodyIsNotWrittenBehind(t *testing.T) {
	store := s3proxytest.StartStore(t)
	node := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back"})
	c := client(t, node.Pod("default", "a", ""))
	bucket, body := aws.String(s3proxytest.Bucket), content(100<<10)
	for name, in := range map[string]*sdk.PutObjectInput{
		"MD5":       {ContentMD5: aws.String("AAAAAAAAAAAAAAAAAAAAAA==")},
		"CRC32":     {ChecksumCRC32: aws.String("AAAAAA==")},
		"CRC32C":    {ChecksumCRC32C: aws.String("AAAAAA==")},
		"CRC64NVME": {ChecksumCRC64NVME: aws.String("AAAAAAAAAAA=")},
		"SHA256":    {ChecksumSHA256: aws.String("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")},
	} {
		in.Bucket, in.Key, in.Body = bucket, &name, bytes.NewReader(body)
		_, err := c.PutObject(t.Context(), in)
		if e := smithy.APIError(nil); !errors.As(err, &e) || !strings.Contains(e.ErrorCode(), "Digest") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, algorithm := range map[string]types.ChecksumAlgorithm{"crc32": types.ChecksumAlgorithmCrc32,
		"crc32c": types.ChecksumAlgorithmCrc32c, "crc64nvme": types.ChecksumAlgorithmCrc64nvme, "sha1": types.ChecksumAlgorithmSha1} {
		if _, err := c.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: bucket, Key: &name, Body: bytes.NewReader(body), ChecksumAlgorithm: algorithm}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	list, err := c.ListObjectsV2(t.Context(), &sdk.ListObjectsV2Input{Bucket: bucket})
	if err != nil || len(list.Contents) != 4 {
		t.Errorf("%+v, %v", list.Contents, err)
	}
	for _, o := range list.Contents {
		if _, got := get(t, c, *bucket, aws.ToString(o.Key)); !bytes.Equal(got, body) {
			t.Errorf("%s has %d bytes", aws.ToString(o.Key), len(got))
		}
	}
}

// A node that is not there any more has what it has acknowledged: reads elsewhere say so by name, and its successor brings
// it to the store.
func TestAnotherDaemonBringsWhatIsWritten(t *testing.T) {
	store := s3proxytest.StartStore(t)
	dir := t.TempDir()
	want := content(100 << 10)
	bucket, key := aws.String(s3proxytest.Bucket), aws.String("k")
	t.Run("before", func(t *testing.T) {
		refuse := func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Has("partNumber") {
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}
			return false
		}
		store.Before.Store(&refuse)
		node := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back", Journal: dir})
		put(t, client(t, node.Pod("default", "a", "")), *bucket, *key, want)
	})
	const patience = 3 * time.Second
	other := client(t, s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back", Patience: patience}).Pod("default", "b", ""))
	once := func(o *sdk.Options) { o.RetryMaxAttempts = 1 }
	for name, ask := range map[string]func() error{
		"a read": func() error {
			_, err := other.GetObject(t.Context(), &sdk.GetObjectInput{Bucket: bucket, Key: key}, once)
			return err
		},
		"a list": func() error {
			_, err := other.ListObjects(t.Context(), &sdk.ListObjectsInput{Bucket: bucket}, once)
			return err
		},
		"a write": func() error {
			_, err := other.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: bucket, Key: key, Body: strings.NewReader("x")}, once)
			return err
		},
	} {
		began := time.Now()
		e := smithy.APIError(nil)
		if err := ask(); !errors.As(err, &e) || e.ErrorCode() != "ServiceUnavailable" || !strings.Contains(e.ErrorMessage(), "object k in bucket "+*bucket) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took >= 2*patience { // it waits once
			t.Errorf("%s takes %v", name, took)
		}
	}
	store.Before.Store(nil)
	node := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back", Journal: dir})
	for _, c := range []*sdk.Client{other, client(t, node.Pod("default", "c", ""))} {
		if _, got := get(t, c, *bucket, *key); !bytes.Equal(got, want) {
			t.Errorf("%d bytes", len(got))
		}
	}
}

// Many writers and readers on two nodes, each key written once after the other: nobody reads anything older than what it
// knows to be acknowledged.
func TestManyWriteBehind(t *testing.T) {
	store := s3proxytest.StartStore(t)
	var clients []*sdk.Client
	for i := range 2 {
		node := s3proxytest.StartNode(t, store, s3proxytest.Options{Write: "back"})
		clients = append(clients, client(t, node.Pod("default", fmt.Sprint("p", i), "")))
	}
	bucket := aws.String(s3proxytest.Bucket)
	var working sync.WaitGroup
	for w := range 6 {
		working.Go(func() {
			key := fmt.Sprint("k/", w)
			for round := range 8 {
				body := bytes.Repeat([]byte{byte('a' + round)}, 64<<10+rand.IntN(100<<10)-rand.IntN(2)*(60<<10))
				c := clients[rand.IntN(2)]
				if _, err := c.PutObject(t.Context(), &sdk.PutObjectInput{Bucket: bucket, Key: &key, Body: bytes.NewReader(body)}); err != nil {
					t.Error(err)
					return
				}
				out, err := clients[rand.IntN(2)].GetObject(t.Context(), &sdk.GetObjectInput{Bucket: bucket, Key: &key})
				if err != nil {
					t.Error(err)
					return
				}
				got := new(bytes.Buffer)
				if _, err := got.ReadFrom(out.Body); err != nil || !bytes.Equal(got.Bytes(), body) {
					t.Errorf("round %d: %d bytes of %.1q, not %d: %v", round, got.Len(), got.Bytes(), len(body), err)
				}
			}
		})
	}
	working.Wait()
}
