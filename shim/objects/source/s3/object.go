package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
)

// object is one object, as ranged.Fetcher reads it.
type object struct {
	*Source
	ref source.Reference
	// held is the version that the caller has, empty for none. Only the first part's question has it.
	held string
}

// Open implements ranged.Object.
func (o *object) Open(ctx context.Context, at, end int64, known *source.Object) (ranged.Answer, error) {
	answer, err := o.open(ctx, at, end, known)
	return answer, o.failure(err, known != nil)
}

func (o *object) open(ctx context.Context, at, end int64, known *source.Object) (ranged.Answer, error) {
	in := &sdk.GetObjectInput{Bucket: &o.ref.Bucket, Key: &o.ref.Key, Range: aws.String(fmt.Sprintf("bytes=%d-%d", at, end-1))}
	switch {
	case known != nil:
		in.IfMatch = &known.Version
	case o.held != "":
		in.IfNoneMatch = &o.held
	}
	out, err := o.client.GetObject(ctx, in)
	if err != nil {
		switch {
		case known == nil && status(err) == statusNoRange:
			return o.empty(ctx)
		case known == nil && o.held != "" && status(err) == http.StatusNotModified:
			return ranged.Answer{}, o.unchanged(err)
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
	if known == nil {
		object.Header = headerOf(out.ResultMetadata)
	}
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

// unchanged is what an answer means that says that the object still is of the version that is held, which it
// may repeat (RFC 9110, section 15.4.5). Of an answer about another one nobody knows what it means: the store is
// asked again, for the object.
func (o *object) unchanged(err error) error {
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) {
		if tag := answer.HTTPResponse().Header.Get("ETag"); tag != "" && tag != o.held {
			o.held = ""
			return ranged.Again(source.Changed(o.store, o.ref))
		}
	}
	return &source.Unchanged{}
}

func (o *object) head(ctx context.Context) (source.Object, error) {
	out, err := o.client.HeadObject(ctx, &sdk.HeadObjectInput{Bucket: &o.ref.Bucket, Key: &o.ref.Key})
	if err != nil {
		return source.Object{}, err
	}
	return source.Object{Size: aws.ToInt64(out.ContentLength), ContentType: aws.ToString(out.ContentType), Version: aws.ToString(out.ETag),
		Header: headerOf(out.ResultMetadata)}, nil
}

// headerOf is what an answer says of the object.
func headerOf(answer middleware.Metadata) http.Header {
	if raw, is := awsmiddleware.GetRawResponse(answer).(*smithyhttp.Response); is {
		return Header(raw.Header)
	}
	return nil
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
