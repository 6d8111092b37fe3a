package policy

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// Volumes are prefixes of a store that a pod sees as directories.
type Volumes struct {
	// Store is the operator's store that has them.
	Store string
	List  []reference.Volume
	// Wait is how long the start of a container waits for them. StartLate: it goes on without those that are
	// not there by then.
	Wait      time.Duration
	StartLate bool
}

// Message is what a node is told of the volumes of a pod, or of an instance; nil if there are none.
func (v Volumes) Message(id, name string) *nodeapi.Volumes {
	if len(v.List) == 0 {
		return nil
	}
	m := &nodeapi.Volumes{Id: id, Name: name, Store: v.Store, Wait: durationpb.New(v.Wait), StartLate: v.StartLate}
	for _, one := range v.List {
		m.Volumes = append(m.Volumes, &nodeapi.Volume{Name: one.Name, Prefix: one.Prefix.String()})
	}
	return m
}

// checkVolumes completes the volumes, and holds their buckets against the operator's allow-list. Of the store
// itself checkStore says what is wrong.
func (p *Policy) checkVolumes(given string, st stores.Stores) (errs field.Errors) {
	if len(p.Volumes.List) == 0 {
		p.Volumes = Volumes{}
		return nil
	}
	p.Volumes.Store = p.Store
	store, ok := st.Get(p.Store)
	if !ok {
		return nil
	}
	if store.Kind != stores.KindS3 {
		return field.Errors{{
			Field: KeyVolumes, Value: given,
			Problem: "cannot be read from store " + store.Name + ", which has no lists of objects",
			Fix:     "name a store of the kind s3 in " + KeyStore,
		}}
	}
	for _, v := range p.Volumes.List {
		if !store.Allows(v.Prefix.Bucket) {
			return field.Errors{{
				Field: KeyVolumes, Value: given,
				Problem: "reads a bucket that store " + store.Name + " does not allow",
				Fix:     "use " + oneOf(store.Buckets) + ", or ask the operator to allow it",
			}}
		}
	}
	return nil
}
