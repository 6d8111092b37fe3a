package s3

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/encoding/httpbinding"
)

// service is what S3 is called in signatures.
const service = "s3"

// Region is what requests to the store are signed for.
func (s *Source) Region() string { return s.options.Region }

// Buckets are those that functions may use.
func (s *Source) Buckets() []string { return slices.Clone(s.Source.Buckets) }

// Forward sends a request to the store, signed for it. The request's URL has the path /bucket or /bucket/key and a query,
// and its header says what the payload is (X-Amz-Content-Sha256). The store's answer is returned as it is, whatever its
// status.
func (s *Source) Forward(r *http.Request) (*http.Response, error) {
	bucket, key, object := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	at, err := s.endpoint(r.Context(), bucket)
	if err != nil {
		return nil, err
	}
	if object {
		// As S3 signs it, whatever the client has escaped.
		at.RawPath = at.EscapedPath() + "/" + httpbinding.EscapePath(key, false)
		at.Path += "/" + key
	}
	at.RawQuery = r.URL.RawQuery
	out := r.Clone(r.Context())
	out.URL, out.Host = at, at.Host
	out.Header.Del("X-Amz-Security-Token") // the signer sets it if the store's credentials have one
	if err := s.sign(out); err != nil {
		return nil, err
	}
	res, err := s.transport.RoundTrip(out)
	if err != nil {
		return nil, fmt.Errorf("store %q: %w", s.store, err)
	}
	return res, nil
}

// sign signs a request with the store's credentials, if it has some.
func (s *Source) sign(r *http.Request) error {
	r.Header.Del("Authorization")
	if aws.IsCredentialsProvider(s.options.Credentials, Anonymous()) {
		return nil
	}
	credentials, err := s.options.Credentials.Retrieve(r.Context())
	if err != nil {
		return fmt.Errorf("store %q: %w", s.store, err)
	}
	if err := (signer{}).SignHTTP(r.Context(), credentials, r, r.Header.Get("X-Amz-Content-Sha256"), service,
		s.options.Region, time.Now()); err != nil {
		return fmt.Errorf("store %q: signing a request: %w", s.store, err)
	}
	return nil
}

// endpoint is the URL of a bucket.
func (s *Source) endpoint(ctx context.Context, bucket string) (*url.URL, error) {
	at, err := sdk.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, sdk.EndpointParameters{
		Bucket: &bucket, Region: &s.options.Region, Endpoint: s.options.BaseEndpoint,
		ForcePathStyle:                 aws.Bool(s.options.UsePathStyle),
		DisableMultiRegionAccessPoints: aws.Bool(true), DisableS3ExpressSessionAuth: aws.Bool(true),
	})
	if err != nil {
		return nil, fmt.Errorf("store %q: %w", s.store, err)
	}
	return &at.URI, nil
}
