package s3

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// maxPage bounds a page of a list, in bytes: 1000 keys of 1024 bytes, each of which may take three, and what is
	// said of each.
	maxPage = 8 << 20
	// listTries is how often a page is asked for while the store cannot answer, with listPause between.
	listTries = 3
	listPause = 500 * time.Millisecond
)

// List implements source.Lister.
func (s *Source) List(ctx context.Context, prefix source.Reference, each func(string, source.Object) error) error {
	if _, err := s.Allowed(prefix, ""); err != nil {
		return err
	}
	in := &sdk.ListObjectsV2Input{Bucket: &prefix.Bucket, Prefix: &prefix.Key,
		EncodingType: types.EncodingTypeUrl} // XML has no control characters
	for {
		out, err := s.page(ctx, prefix, in)
		if err != nil {
			return err
		}
		for _, o := range out.Contents {
			name, object, err := listed(out, o, prefix)
			if err != nil {
				return source.Unavailable(s.store, err.Error())
			}
			if err := each(name, object); err != nil {
				return err
			}
		}
		next := aws.ToString(out.NextContinuationToken)
		switch {
		case !aws.ToBool(out.IsTruncated):
			return nil
		case next == "" || len(out.Contents) == 0: // it would never end
			return source.Unavailable(s.store, "its list breaks off")
		}
		in.ContinuationToken = &next
	}
}

// page is one answer of the store, which is asked again if it cannot give one.
func (s *Source) page(ctx context.Context, prefix source.Reference, in *sdk.ListObjectsV2Input) (
	out *sdk.ListObjectsV2Output, err error,
) {
	bounded := func(o *sdk.Options) { o.HTTPClient = boundedPages{o.HTTPClient} }
	for try := 1; ; try++ {
		err = s.Ask(ctx, prefix, func(ctx context.Context) error {
			out, err = s.client.ListObjectsV2(ctx, in, bounded)
			return (&object{Source: s, ref: prefix}).failure(err, false)
		})
		reason := problem.ReasonOf(err)
		if try == listTries || reason != "StoreUnavailable" && reason != problem.ReasonStoreTimeout {
			return out, err
		}
		select {
		case <-time.After(listPause):
		case <-ctx.Done():
			return nil, source.Ended(ctx, s.store, prefix)
		}
	}
}

// listed reads one object of a page.
func listed(page *sdk.ListObjectsV2Output, o types.Object, prefix source.Reference) (string, source.Object, error) {
	key := aws.ToString(o.Key)
	if page.EncodingType == types.EncodingTypeUrl {
		decoded, err := url.QueryUnescape(key)
		if err != nil {
			return "", source.Object{}, errors.New("it lists a key that is not encoded as it says")
		}
		key = decoded
	}
	name, ok := strings.CutPrefix(key, prefix.Key)
	switch {
	case !ok:
		return "", source.Object{}, errors.New("it lists a key that does not begin with the prefix")
	case aws.ToInt64(o.Size) < 0 || aws.ToString(o.ETag) == "":
		return "", source.Object{}, errors.New("it lists an object without size or entity tag")
	}
	return name, source.Object{Size: aws.ToInt64(o.Size), Version: *o.ETag}, nil
}

// boundedPages cuts answers that are too long.
type boundedPages struct{ sdk.HTTPClient }

func (c boundedPages) Do(r *http.Request) (*http.Response, error) {
	answer, err := c.HTTPClient.Do(r)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, maxPage), answer.Body}
	}
	return answer, err
}
