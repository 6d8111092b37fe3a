// Package s3 reads inputs from stores with the S3 API, by ranged reads in parallel.
package s3

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/address"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
)

const (
	// Part is the largest range asked for at once, in bytes. A connection idles for one
	// round trip per part: at 8 connections on 500 Mbit/s a part takes 270 ms, so that is
	// a sixth, and the other connections use it. Larger parts would hold up the prefix,
	// which grows to the end of a part only when those before are there.
	Part = 2 << 20

	// maxError bounds an error's body, in bytes: the SDK reads it into memory.
	maxError = 64 << 10
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
	// Credentials are asked for each request to the store.
	Credentials aws.CredentialsProvider
}

// Source reads objects of one store. It implements source.Source.
type Source struct {
	ranged.Source
	store     string
	client    *sdk.Client
	options   sdk.Options
	transport *http.Transport
}

// New returns the source of a store. It does not call the store.
func New(cfg Config) (*Source, error) {
	if cfg.Region == "" || cfg.Credentials == nil {
		return nil, fmt.Errorf("store %q: region and credentials are required", cfg.Store)
	}
	options := sdk.Options{
		Region:       cfg.Region,
		UsePathStyle: cfg.PathStyle,
		Credentials:  cfg.Credentials,
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
	s := &Source{store: cfg.Store, transport: ranged.Transport(address.Rule{Store: cfg.Store})}
	s.Source = ranged.Source{
		Fetcher: ranged.New(cfg.Store, Part),
		Schemes: []string{source.SchemeS3}, Buckets: slices.Clone(cfg.Buckets),
		Object: func(ref source.Reference, held string) (ranged.Object, error) {
			return &object{Source: s, ref: ref, held: held}, nil
		},
	}
	options.HTTPClient = &http.Client{
		Transport: &boundedErrors{s.transport},
		// A redirect leads away from the endpoint that the operator allows.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.client, s.options = sdk.New(options), options
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
