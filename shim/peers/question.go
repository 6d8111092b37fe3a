package peers

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
)

// Key names an object.
type Key struct {
	// Namespace is empty in buckets that the operator calls shared.
	Namespace, Store, Reference string
}

// name is the key for rendezvous hashing.
func (k Key) name() string { return k.Namespace + "\x00" + k.Store + "\x00" + k.Reference }

// question is what one node asks another.
type question struct {
	// Namespace is whose functions the object is for.
	Namespace, Store, Reference string
	// Held is the version that the asker has. If it is the one of now, no bytes follow.
	Held string
	// Version is the one that is asked for; empty: the one of now.
	Version string
	// From is the number of the first block that is asked for.
	From int64
	// Only what the node has, or is getting, is asked for: a referral led there.
	Only bool
	// Site is the digest of the members that the asker knows.
	Site string
}

// path is where questions go.
const path = "/object"

// part is one of a question, and how many bytes it has at most. The longest keys have 1024.
type part struct {
	name string
	of   *string
	most int
}

// parts are those of a question. A number and a truth value are texts of their own.
func (q *question) parts(from, only *string) []part {
	return []part{{"namespace", &q.Namespace, 63}, {"store", &q.Store, 253}, {"reference", &q.Reference, 8 << 10},
		{"held", &q.Held, 1 << 10}, {"version", &q.Version, 1 << 10}, {"site", &q.Site, 64}, {"from", from, 10}, {"only", only, 4}}
}

func (q question) query() string {
	from, only, v := "", "", url.Values{}
	if q.From > 0 {
		from = strconv.FormatInt(q.From, 10)
	}
	if q.Only {
		only = strconv.FormatBool(true)
	}
	for _, p := range q.parts(&from, &only) {
		if *p.of != "" {
			v.Set(p.name, *p.of)
		}
	}
	return v.Encode()
}

// parseQuestion reads a question. Parts that it does not know are a later version's.
func parseQuestion(query string) (q question, err error) {
	v, err := url.ParseQuery(query)
	if err != nil {
		return q, err
	}
	var from, only string
	for _, p := range q.parts(&from, &only) {
		*p.of = v.Get(p.name)
		if len(v[p.name]) > 1 || len(*p.of) > p.most {
			return q, fmt.Errorf("%s is repeated or too long", p.name)
		}
	}
	q.Only = only == strconv.FormatBool(true)
	if q.Namespace == "" || q.Store == "" || q.Reference == "" || q.Only && q.Version == "" {
		return q, errors.New("namespace, store or reference is missing, or a version")
	}
	if from != "" {
		n, err := strconv.ParseUint(from, 10, 31)
		if err != nil {
			return q, fmt.Errorf("from: %w", err)
		}
		q.From = int64(n)
	}
	return q, nil
}
