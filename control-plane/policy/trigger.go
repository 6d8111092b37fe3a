package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// StreamForm is a stream's reference. Its bucket is as those of inputs are; its key is
// what a URI takes as it is, since it is the source of events.
var StreamForm = regexp.MustCompile(
	"^" + reference.Redis + "://" + reference.RedisBuckets.Pattern() + "/[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}$",
)

// CountForm is a number from 1, as everybody writes it.
var CountForm = regexp.MustCompile(`^[1-9][0-9]{0,8}$`)

func (a Annotation) checkCount(text string) (v value, problem, fix string) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !CountForm.MatchString(text) || n > a.Largest {
		return v, fmt.Sprintf("is not a number from 1 to %d", a.Largest), "write it like " + a.Example
	}
	return value{text: text, number: n}, "", ""
}

// StreamBucket is the bucket of a stream's reference; ok is false if it is none.
func StreamBucket(stream string) (bucket string, ok bool) {
	if !StreamForm.MatchString(stream) {
		return "", false
	}
	bucket, _, _ = strings.Cut(strings.TrimPrefix(stream, reference.Redis+"://"), "/")
	return bucket, true
}

// checkTrigger says which store the stream is in, and holds it against the operator's
// allow-list.
func (p *Policy) checkTrigger(given map[string]string, st stores.Stores) *field.Error {
	key := KeyTriggerStore
	if _, own := given[KeyTriggerStore]; !own {
		key, p.TriggerStore = KeyStore, p.Store
	}
	if p.Trigger == "" {
		p.TriggerStore, p.TriggerTries = "", 0
	}
	if p.TriggerStore == "" { // none, or what is wrong is said already
		return nil
	}
	if _, own := given[KeyTriggerTries]; !own {
		p.TriggerTries = DefaultTriggerTries
	}
	store, ok := st.Get(p.TriggerStore)
	if !ok {
		return unknownStore(key, p.TriggerStore, st)
	}
	if store.Kind != stores.KindRedis {
		return &field.Error{Field: key, Value: p.TriggerStore, Problem: "has no streams", Fix: "name a store of the kind redis by " + KeyTriggerStore}
	}
	bucket, _ := StreamBucket(p.Trigger)
	if store.Allows(bucket) {
		return nil
	}
	return &field.Error{
		Field: KeyTrigger, Value: p.Trigger,
		Problem: "is in a bucket that store " + store.Name + " does not allow",
		Fix:     "use " + oneOf(store.Buckets) + ", or ask the operator to allow it",
	}
}
