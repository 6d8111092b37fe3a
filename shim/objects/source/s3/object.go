package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
)

// object is one object, as ranged.Fetcher reads it.
type object struct {
	*Source
	ref source.Reference
}

// Open implements ranged.Object.
func (o *object) Open(ctx context.Context, at, end int64, known *source.Object) (ranged.Answer, error) {
	answer, err := o.open(ctx, at, end, known)
	return answer, o.failure(err, known != nil)
}

func (o *object) open(ctx context.Context, at, end int64, known *source.Object) (ranged.Answer, error) {
	in := &sdk.GetObjectInput{Bucket: &o.ref.Bucket, Key: &o.ref.Key, Range: aws.String(fmt.Sprintf("bytes=%d-%d", at, end-1))}
	if known != nil {
		in.IfMatch = &known.Version
	}
	out, err := o.client.GetObject(ctx, in)
	if err != nil {
		if known == nil && status(err) == statusNoRange {
			return o.empty(ctx)
		}
		return ranged.Answer{}, err
	}
	size, err := sizeOf(out, at, end)
	if err == nil && aws.ToString(out.ETag) == "" {
		err = errors.New("it gives no entity tag")
	}
	if err != nil {
		// Closing cannot make it worse.
		_ = out.Body.Close()
		return ranged.Answer{}, &uselessError{err}
	}
	object := source.Object{Size: size, ContentType: aws.ToString(out.ContentType), Version: *out.ETag}
	return ranged.Answer{Object: object, Body: out.Body, From: at}, nil
}

// empty describes an object of no bytes: it has no first range, so the store's answer
// to the question for one tells nothing else.
func (o *object) empty(ctx context.Context) (ranged.Answer, error) {
	object, err := o.head(ctx)
	if err != nil {
		return ranged.Answer{}, err
	}
	if object.Size != 0 {
		return ranged.Answer{}, source.Changed(o.store, o.ref)
	}
	return ranged.Answer{Object: object, Body: http.NoBody}, nil
}

// Stat implements ranged.Object.
func (o *object) Stat(ctx context.Context) (source.Object, error) {
	object, err := o.head(ctx)
	return object, o.failure(err, false)
}

func (o *object) head(ctx context.Context) (source.Object, error) {
	out, err := o.client.HeadObject(ctx, &sdk.HeadObjectInput{Bucket: &o.ref.Bucket, Key: &o.ref.Key})
	if err != nil {
		return source.Object{}, err
	}
	return source.Object{Size: aws.ToInt64(out.ContentLength), ContentType: aws.ToString(out.ContentType), Version: aws.ToString(out.ETag)}, nil
}

// sizeOf returns the whole object's size, if the answer is the range that was asked for.
func sizeOf(out *sdk.GetObjectOutput, at, end int64) (int64, error) {
	if out.ContentRange == nil {
		// The whole object. Some stores answer so when the range covers it.
		if out.ContentLength == nil || at != 0 || *out.ContentLength < 0 || *out.ContentLength > end {
			return 0, errors.New("it does not serve ranges")
		}
		return *out.ContentLength, nil
	}
	return ranged.SizeIn(*out.ContentRange, at, end)
}
