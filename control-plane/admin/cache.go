package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// queryMost is the largest CacheQuery in bytes: the longest reference has 1 KiB.
const queryMost = 16 << 10

// CacheQuery is something to do with what nodes keep.
type CacheQuery struct {
	// Verb is list, pin, unpin, drop, verify, warm, advise, workflows or observed.
	Verb string `json:"verb"`
	// Node is the only one that is asked; empty: all.
	Node string `json:"node,omitempty"`
	// Which objects and volumes are meant; what is empty fits all. A reference that ends with a slash fits all that
	// begin with it. To warm one, all three are needed, or Function.
	Namespace string `json:"namespace,omitempty"`
	Store     string `json:"store,omitempty"`
	Reference string `json:"reference,omitempty"`
	// Function is namespace/name of the one whose volumes are to be warmed.
	Function string `json:"function,omitempty"`
}

// CacheNode is what one node has.
type CacheNode struct {
	Node string `json:"node"`
	// Entries are objects, and versions of volumes, of which the tier is volume.
	Entries []*nodeapi.CacheEntry `json:"entries"`
	// Problem is why it did not do all that was asked for.
	Problem string `json:"problem,omitempty"`
}

// Cache does something with what nodes keep. It takes as long as that, and ends with ctx.
func (c *Client) Cache(ctx context.Context, q CacheQuery) ([]CacheNode, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	var nodes []CacheNode
	patient := Client{explain: c.explain, replicas: c.replicas, http: http.Client{Transport: c.http.Transport}}
	err = patient.call(ctx, http.MethodPost, "/v1/cache", bytes.NewReader(b), &nodes)
	return nodes, err
}
