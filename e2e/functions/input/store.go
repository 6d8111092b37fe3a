package input

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/sync/errgroup"
)

// An object is read in parts of partSize, so many at a time, as S3's own performance
// guidelines advise (byte ranges of 8 to 16 MB on several connections): a single stream
// would make what the function fetches for itself look slower than it has to be.
const (
	partSize     = 8 << 20
	partsAtATime = 8
)

// S3 is an object store that speaks the S3 protocol.
type S3 struct{ client *s3.Client }

// NewS3 returns the store at an endpoint such as http://10.0.0.1:7070.
func NewS3(endpoint, region, accessKeyID, secretAccessKey string) *S3 {
	return &S3{s3.New(s3.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       region,
		Credentials:  credentials.NewStaticCredentialsProvider(accessKeyID, secretAccessKey, ""),
		UsePathStyle: true, // the endpoint need not have a name per bucket
		// Checksums are of whole objects; a range has none to compare with.
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	})}
}

// Get reads the object in parallel parts. The first part's answer tells the size, so no
// round trip is spent on asking. All parts are of one version of the object.
func (s *S3) Get(ctx context.Context, bucket, key string, limit int64) ([]byte, error) {
	first, err := s.part(ctx, bucket, key, "", 0)
	if empty := new(smithyhttp.ResponseError); errors.As(err, &empty) &&
		empty.HTTPStatusCode() == http.StatusRequestedRangeNotSatisfiable {
		return nil, nil // an empty object has no first byte
	}
	if err != nil {
		return nil, refusalOf(err, bucket, key)
	}
	size, err := objectSize(first)
	if err == nil && size > limit {
		err = tooLarge(limit)
	}
	if err != nil {
		return nil, errors.Join(err, first.Body.Close())
	}

	data := make([]byte, size)
	parts, ctx := errgroup.WithContext(ctx)
	parts.SetLimit(partsAtATime)
	parts.Go(func() error { return readPart(first, data[:min(size, partSize)]) })
	for offset := int64(partSize); offset < size; offset += partSize {
		parts.Go(func() error {
			part, err := s.part(ctx, bucket, key, aws.ToString(first.ETag), offset)
			if err != nil {
				return err
			}
			return readPart(part, data[offset:min(size, offset+partSize)])
		})
	}
	if err := parts.Wait(); err != nil {
		return nil, refusalOf(err, bucket, key)
	}
	return data, nil
}

// Put stores an object.
func (s *S3) Put(ctx context.Context, bucket, key string, data []byte) error {
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String(key), Body: bytes.NewReader(data)})
	return err
}

// part asks for the part at an offset, of the version with the given entity tag unless
// that is empty.
func (s *S3) part(ctx context.Context, bucket, key, etag string, offset int64) (*s3.GetObjectOutput, error) {
	in := &s3.GetObjectInput{
		Bucket: aws.String(bucket),
		Key:    aws.String(key),
		Range:  aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset+partSize-1)),
	}
	if etag != "" {
		in.IfMatch = aws.String(etag)
	}
	return s.client.GetObject(ctx, in)
}

func readPart(part *s3.GetObjectOutput, into []byte) error {
	defer part.Body.Close()
	if n := aws.ToInt64(part.ContentLength); n != int64(len(into)) {
		return fmt.Errorf("the store answers with %d bytes instead of %d", n, len(into))
	}
	_, err := io.ReadFull(part.Body, into)
	return err
}

// objectSize is the object's size by the answer for its first part: what follows the
// slash in "bytes 0-8388607/134217728" (RFC 9110, section 14.4).
func objectSize(first *s3.GetObjectOutput) (int64, error) {
	_, total, _ := strings.Cut(aws.ToString(first.ContentRange), "/")
	size, err := strconv.ParseInt(total, 10, 64)
	if err != nil || size < 0 {
		return 0, refuse(http.StatusBadGateway, "the store does not answer requests for ranges")
	}
	return size, nil
}

// refusalOf turns a store's error into one for the caller, which names the object and the
// store's own code, and neither address nor credentials.
func refusalOf(err error, bucket, key string) error {
	status, code := http.StatusBadGateway, "the store cannot be reached or broke off"
	if answer := new(smithyhttp.ResponseError); errors.As(err, &answer) {
		code = fmt.Sprintf("the store answers %d", answer.HTTPStatusCode())
		switch answer.HTTPStatusCode() {
		case http.StatusNotFound, http.StatusForbidden:
			status = answer.HTTPStatusCode()
		case http.StatusPreconditionFailed:
			status, code = http.StatusConflict, "the object changed while it was read"
		}
	}
	if api := smithy.APIError(nil); errors.As(err, &api) && status != http.StatusConflict {
		code += " " + api.ErrorCode()
	}
	return fmt.Errorf("%w: %w", refuse(status, "object %q in bucket %q: %s", key, bucket, code), err)
}
