package coordinator

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// cachePatience is how long nodes may take to look at what they have, and cacheLongest to read or fetch it, to which
	// they have limits of their own (shim/curator): one that hangs does not keep the others' answers from the operator.
	cachePatience = time.Minute
	cacheLongest  = time.Hour + time.Minute
)

// Cache implements admin.Backend: the nodes do it, at the same time.
func (c *common) Cache(ctx context.Context, q admin.CacheQuery) ([]admin.CacheNode, error) {
	calls, err := c.cacheCalls(q)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(c.Nodes.Connected()))
	if q.Node != "" {
		names = slices.DeleteFunc(names, func(name string) bool { return name != q.Node })
		if len(names) == 0 {
			return nil, &platform.Refusal{Status: http.StatusNotFound, Reason: "NodeUnknown", Field: "node",
				Message: "no such node is connected; `headstart status` lists them"}
		}
	}
	patience := cachePatience
	if verb := calls[0].GetVerb(); verb == nodeapi.CacheVerb_CACHE_VERB_VERIFY || verb == nodeapi.CacheVerb_CACHE_VERB_WARM {
		patience = time.Duration(len(calls)) * cacheLongest
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all := make([]admin.CacheNode, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() {
			all[i].Node = name
			for _, call := range calls {
				entries, err := c.Nodes.Cache(ctx, name, call)
				all[i].Entries = append(all[i].Entries, entries...)
				if err != nil {
					all[i].Problem = err.Error()
				}
			}
		})
	}
	asking.Wait()
	return all, nil
}

// cacheCalls is what a query has each node do.
func (c *common) cacheCalls(q admin.CacheQuery) ([]*nodeapi.CacheCall, error) {
	verb := nodeapi.CacheVerb(nodeapi.CacheVerb_value["CACHE_VERB_"+strings.ToUpper(q.Verb)])
	call := &nodeapi.CacheCall{Verb: verb, Namespace: q.Namespace, Store: q.Store, Reference: q.Reference}
	switch {
	case verb == nodeapi.CacheVerb_CACHE_VERB_UNSPECIFIED:
		return nil, &platform.Refusal{Status: http.StatusBadRequest, Reason: "QueryMalformed", Field: "verb", Message: "verb: use list, pin, unpin, drop, verify, warm, advise, workflows or observed"}
	case verb != nodeapi.CacheVerb_CACHE_VERB_WARM:
		return []*nodeapi.CacheCall{call}, nil
	case q.Function == "" && (q.Namespace == "" || q.Reference == ""):
		return nil, &platform.Refusal{Status: http.StatusBadRequest, Reason: "QueryMalformed", Field: "reference", Message: "name a function, or a namespace and a reference"}
	case q.Function == "":
		call.Store = cmp.Or(q.Store, policy.DefaultStore)
		return []*nodeapi.CacheCall{call}, nil
	}
	functions := c.platform.State().Functions
	i := slices.IndexFunc(functions, func(f platform.Function) bool { return f.Name == q.Function })
	if i < 0 {
		return nil, &platform.Refusal{Status: http.StatusNotFound, Reason: "FunctionUnknown", Message: "no such function; `headstart status` lists them"}
	}
	volumes := functions[i].Policy.Volumes
	if len(volumes.List) == 0 {
		return nil, &platform.Refusal{Status: http.StatusNotFound, Reason: "VolumesNone",
			Message: "the control plane knows no volumes of the function; on Kubernetes only its pods have them: name the prefix, such as s3://models/llama/"}
	}
	namespace, _, _ := strings.Cut(q.Function, "/")
	var calls []*nodeapi.CacheCall
	for _, v := range volumes.List {
		calls = append(calls, &nodeapi.CacheCall{Verb: verb, Namespace: namespace, Store: volumes.Store, Reference: v.Prefix.String()})
	}
	return calls, nil
}
