package learn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// candidate is a template that is tested, and its form as JSON.
type candidate struct {
	Text    string  `json:"text"`
	History history `json:"history"`
	// Depth is how many slashes the deepest reference has that was read.
	Depth  int  `json:"depth"`
	Proven bool `json:"proven"`

	template reference.Template
	fields   int
	idle     int // observations without a trial
}

// parse refuses templates that no request may make predictions of.
func (c *candidate) parse() (err error) {
	if c.template, err = reference.ParseTemplate(c.Text); err != nil {
		return err
	}
	if _, literal := c.template.Bucket(); !literal {
		return errors.New("has a bucket that clients name")
	}
	headers, parameters := c.template.Headers(), c.template.Parameters()
	for _, name := range headers {
		if !mayName(name) {
			return fmt.Errorf("names the header %.64q, which says nothing of an object", name)
		}
	}
	for _, name := range parameters {
		if isSecret(strings.ToLower(name)) {
			return fmt.Errorf("names the parameter %.64q, which may hold a secret", name)
		}
	}
	c.fields = len(headers) + len(parameters) + len(c.template.Variables())
	return nil
}

// makes returns the references that the requests make of the template, each once.
func (c *candidate) makes(requests []Request) (refs []string) {
	for _, r := range requests {
		if ref, ok := r.expand(c.template); ok && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

func (c *candidate) note(cold, right bool, bytes float64) {
	c.idle = 0
	c.History.note(cold, right, bytes)
}

func (c *candidate) judge() {
	switch r := c.History.judged(); {
	case r.waste() > MaxWaste:
		c.Proven = false
	case r.rate() >= leastRate:
		c.Proven = true
	}
}

func (c *candidate) rate() float64 { return c.History.judged().rate() }

// inUse tells that no newer template takes its place.
func (c *candidate) inUse() bool { return (c.Proven || c.rate() >= promising) && c.idle < idleLong }

// better sorts the proven ones first, and of equals the simpler one, which leaves less to the client.
func better(a, b *candidate) int {
	return cmp.Or(
		cmp.Compare(number(b.Proven), number(a.Proven)),
		cmp.Compare(b.rate(), a.rate()),
		cmp.Compare(a.fields, b.fields))
}
