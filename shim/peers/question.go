package peers

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
)

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
	// Write is the one that is asked for, of those that the node has acknowledged and the store does not have yet. It goes
	// with Only.
	Write string
	// Site is the digest of the members that the asker knows.
	Site string
}

const (
	// path is where questions go, and writePath where those for a write go: a node that does not know these must not answer
	// them with another write of the same content.
	path, writePath = "/object", "/write"
	// questionMost is how many bytes a question has at most. The longest references have 8 KiB, which are three times as
	// many in a URL.
	questionMost = 32 << 10
)

func (q question) path() string {
	if q.Write != "" {
		return writePath
	}
	return path
}

func (q question) query() string {
	v := url.Values{"namespace": {q.Namespace}, "store": {q.Store}, "reference": {q.Reference}, "held": {q.Held},
		"version": {q.Version}, "from": {strconv.FormatInt(q.From, 10)}, "only": {strconv.FormatBool(q.Only)},
		"site": {q.Site}}
	if q.Write != "" {
		v.Set("write", q.Write)
	}
	return v.Encode()
}

// parseQuestion reads a question. Parts that it does not know are a later version's.
func parseQuestion(query string) (question, error) {
	v, err := url.ParseQuery(query)
	if err != nil || len(query) > questionMost {
		return question{}, errors.New("the question is malformed, or too long")
	}
	q := question{Namespace: v.Get("namespace"), Store: v.Get("store"), Reference: v.Get("reference"), Held: v.Get("held"),
		Version: v.Get("version"), Only: v.Get("only") == strconv.FormatBool(true), Site: v.Get("site"), Write: v.Get("write")}
	if q.Namespace == "" || q.Store == "" || q.Reference == "" || q.Only && q.Version == "" || q.Write != "" && !q.Only {
		return q, errors.New("namespace, store or reference is missing, or a version")
	}
	if from := v.Get("from"); from != "" {
		n, err := strconv.ParseUint(from, 10, 31)
		if err != nil {
			return q, fmt.Errorf("from: %w", err)
		}
		q.From = int64(n)
	}
	return q, nil
}
