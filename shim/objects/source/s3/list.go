package s3

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// List implements source.Lister.
func (s *Source) List(ctx context.Context, prefix source.Reference, each func(source.Listed) error) error {
	if _, err := s.Allowed(prefix, ""); err != nil {
		return err
	}
	o := &object{Source: s, ref: prefix} // for what the store's errors mean
	in := &sdk.ListObjectsV2Input{Bucket: &prefix.Bucket, Prefix: &prefix.Key}
	for pages := sdk.NewListObjectsV2Paginator(s.client, in); pages.HasMorePages(); {
		var page *sdk.ListObjectsV2Output
		err := s.Ask(ctx, prefix, func(ctx context.Context) (err error) {
			page, err = pages.NextPage(ctx)
			return o.failure(err, false)
		})
		if err != nil {
			return err
		}
		for _, one := range page.Contents {
			err := each(source.Listed{Key: aws.ToString(one.Key), Size: aws.ToInt64(one.Size), Version: aws.ToString(one.ETag)})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
