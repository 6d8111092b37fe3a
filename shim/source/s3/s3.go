// Package s3 reads inputs from stores with the S3 API, by ranged reads in parallel.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/headstart-mesh/headstart/shim/source"
	"github.com/headstart-mesh/headstart/shim/source/ranged"
	"github.com/headstart-mesh/headstart/shim/source/secret"
)

const (
	// Part is the largest range asked for at once, in bytes. A connection idles for one
	// round trip per part: at 8 connections on 500 Mbit/s a part takes 270 ms, so that is
	// a sixth, and the other connections use it. Larger parts would hold up the prefix,
	// which grows to the end of a part only when those before are there.
	Part = 2 << 20

	// maxHeader bounds an answer's header, maxError an error's body, in bytes: the SDK
	// reads them into memory. S3 allows 2 KB of user metadata; its errors have less.
	maxHeader = 64 << 10
	maxError  = 64 << 10
)

// Config describes one store as the operator allows it.
type Config struct {
	// Store is the store's name in messages.
	Store string
	// Endpoint is an http or https URL; empty: Amazon's own for the region.
	Endpoint string
	Region   string
	// PathStyle asks for endpoint/bucket/key instead of bucket.endpoint/key.
	PathStyle bool
	// Buckets are the only ones that references may name.
	Buckets []string
	// Credentials is called for each request to the store, so that a changed secret
	// counts from the next one on.
	Credentials func(context.Context) (secret.Secret, error)
}

// Source reads objects of one store. It implements source.Source.
type Source struct {
	store     string
	buckets   []string
	client    *sdk.Client
	transport *http.Transport
	fetcher   *ranged.Fetcher
}

// New returns the source of a store. It does not call the store.
func New(cfg Config) (*Source, error) {
	if cfg.Region == "" || cfg.Credentials == nil {
		return nil, fmt.Errorf("store %q: region and credentials are required", cfg.Store)
	}
	options := sdk.Options{
		Region:       cfg.Region,
		UsePathStyle: cfg.PathStyle,
		Credentials:  provider(cfg.Credentials),
		HTTPSignerV4: signer{},
		// Parts are asked for again here, where it is known what of them has arrived.
		Retryer: aws.NopRetryer{},
		// Checksums are of whole objects, ranges have none; the entity tag and the length
		// say whether the parts belong together.
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		// Both would reach other hosts than the operator's endpoint.
		DisableMultiRegionAccessPoints: true,
		DisableS3ExpressSessionAuth:    aws.Bool(true),
	}
	if cfg.Endpoint != "" {
		if err := checkEndpoint(cfg.Endpoint); err != nil {
			return nil, fmt.Errorf("store %q: %w", cfg.Store, err)
		}
		options.BaseEndpoint = &cfg.Endpoint
	}
	s := &Source{
		store:   cfg.Store,
		buckets: slices.Clone(cfg.Buckets),
		fetcher: ranged.New(cfg.Store, Part),
		// No proxy from the environment, and HTTP/1.1: HTTP/2 would put all parts on one
		// connection with one congestion window.
		transport: &http.Transport{
			DialContext:            ranged.Dialer().DialContext,
			TLSHandshakeTimeout:    ranged.Stall,
			MaxIdleConnsPerHost:    ranged.Slots,
			IdleConnTimeout:        ranged.Idle,
			MaxResponseHeaderBytes: maxHeader,
			DisableCompression:     true,
		},
	}
	options.HTTPClient = &http.Client{
		Transport: &boundedErrors{s.transport},
		// A redirect leads away from the endpoint that the operator allows.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.client = sdk.New(options)
	return s, nil
}

// boundedErrors cuts the bodies of errors.
type boundedErrors struct{ http.RoundTripper }

func (t *boundedErrors) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode >= http.StatusMultipleChoices {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, maxError), answer.Body}
	}
	return answer, err
}

func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		// The parser's error repeats the URL, and with it a password.
		return errors.New("the endpoint is not a URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("the endpoint must look like https://host:port, without user and query")
	}
	return nil
}

// Close gives up the connections that are kept for later. A Fetch that is under way goes on
// by those that it has.
func (s *Source) Close() { s.transport.CloseIdleConnections() }

// Fetch implements source.Source.
func (s *Source) Fetch(ctx context.Context, ref source.Reference, begin func(source.Object) (io.WriterAt, error)) error {
	if err := s.allow(ref); err != nil {
		return err
	}
	return s.fetcher.Fetch(ctx, ref, &object{s, ref}, begin)
}

// Stat implements source.Source.
func (s *Source) Stat(ctx context.Context, ref source.Reference) (found source.Object, err error) {
	if err := s.allow(ref); err != nil {
		return source.Object{}, err
	}
	err = s.fetcher.Ask(ctx, ref, func(ctx context.Context) error {
		found, err = (&object{s, ref}).stat(ctx)
		return err
	})
	return found, err
}

func (s *Source) allow(ref source.Reference) error {
	if ref.Scheme != source.SchemeS3 {
		return source.OtherScheme(s.store, ref, "s3://")
	}
	if !slices.Contains(s.buckets, ref.Bucket) {
		return source.NotAllowed(s.store, ref)
	}
	return nil
}
