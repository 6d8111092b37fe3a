package policy

import (
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// checkS3 holds the store whose S3 API is asked for against the operator's allow-list.
func (p *Policy) checkS3(st stores.Stores) field.Errors {
	if p.S3 == "" {
		return nil
	}
	store, ok := st.Get(p.S3)
	switch {
	case !ok:
		return field.Errors{unknownStore(KeyS3, p.S3, st)}
	case store.Kind != stores.KindS3:
		return field.Errors{{
			Field: KeyS3, Value: p.S3, Problem: "is a store without the S3 API", Fix: "name a store of the kind s3",
		}}
	}
	return nil
}
