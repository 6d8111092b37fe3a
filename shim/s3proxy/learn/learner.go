// Package learn finds out which objects a function reads for which requests. It compares the references that the
// program has read with the requests' headers, query and path, proposes input templates (the grammar is that of
// headstart.dev/input), and tests each of them with later requests. Those that prove right predict references. The
// package does no input or output, reads no clock and starts no goroutine.
//
// # Bounds of waste
//
// A template predicts after 5 right trials in a row, or more if some were wrong. It stops when more than MaxWaste of
// its bytes are wasted: after 5 wrong trials if all before were right, and earlier if it is new. Its tests go on, so it
// can come back. A template is tested only where no better one predicts the same reference, so each wrong prediction
// is some template's.
//
// Besides, the learner keeps an account of the bytes that predictions have really wasted and saved. While the account
// is overdrawn, Predict returns nothing. This bounds what clients can do that know when a template predicts and behave
// well until then. In total the wasted bytes are at most the sum of a quarter of the saved bytes, a twentieth of the
// bytes that the program read without a prediction, and the bytes of one Observation.
//
// # Concurrency
//
// If several requests are under way, the program's reads cannot be attributed to one of them. So an Observation has
// all requests of a Group, and all objects that the program read in this time. A template is right if it names an
// object that was read, for any of the requests. One object is one trial, however many requests name it. So a wrong
// prediction is certain: no request has read the object. A right one may be the merit of another request. The object
// was useful all the same, and its read counts once, because groups do not overlap.
package learn

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// Bounds of a learner and of an observation. A learner takes 200 KiB at most, and 10 KiB as a rule.
const (
	// MaxTemplates is enough for the routes of a function, with some objects each.
	MaxTemplates = 32
	// MaxPredictions is as many inputs as an operator can name.
	MaxPredictions = reference.MaxNamed
	// MaxRequests is more than a program with the usual concurrency of 10 has under way.
	MaxRequests = 16
	// MaxObjects bounds what is read in one observation: 32 objects for each request.
	MaxObjects = 512
	// maxProposed is how many of the texts are remembered that only one read has proposed yet.
	maxProposed = 512
	// idleLong is after how many observations without a trial a good template can be replaced.
	idleLong = 64
)

// Object is an object of a store. Its reference is s3://bucket/key.
type Object struct {
	Reference string
	Bytes     int64
}

// Observation is what a program did with one or more requests. Group makes observations.
type Observation struct {
	Requests []Request
	// Read are the objects that the program read until all requests had ended, each once.
	Read []Object
	// Fetched are the objects that were fetched because of a prediction for these requests, each once, with the bytes
	// that have come.
	Fetched []Object
	// Cold tells that the instance started for these requests. What it read before their delivery belongs to them.
	Cold bool
}

// Prediction is an object that a request is going to read.
type Prediction struct {
	Reference string
	// Template is the text of the template that has made the reference.
	Template string
	// Bytes is the mean size of the template's objects. The size of this one is not known.
	Bytes int64
}

// Template is what has been learned.
type Template struct {
	// Text is what reference.ParseTemplate reads.
	Text string
	// Right is how often an object was read that the template named, of all times it was Tested. If there were enough
	// cold starts, these alone count.
	Right, Tested int64
	// Bytes is the mean size of the objects that were read.
	Bytes int64
	// Waste is the share of wasted bytes in the last trials.
	Waste float64
	// Proven tells that the template predicts.
	Proven bool
}

// Learner learns for one function. New makes it. Its caller locks it.
type Learner struct {
	candidates []*candidate // the best one first
	credit     float64      // bytes that predictions may still waste; below 0 there are none
	proposed   [maxProposed]uint64
	at         int // where the next text is written in proposed
	turn       int // which of several reads proposes first
	seed       maphash.Seed
}

// New returns a learner that has learned nothing.
func New() *Learner { return &Learner{seed: maphash.MakeSeed()} }

// Predict returns the objects that a request is going to read if an instance starts for it, those of the best template
// first, each once.
func (l *Learner) Predict(r Request) []Prediction {
	var all []Prediction
	for _, c := range l.candidates {
		if !c.Proven || l.credit < 0 || len(all) == MaxPredictions {
			break
		}
		ref, ok := r.expand(c.template)
		known := slices.ContainsFunc(all, func(p Prediction) bool { return p.Reference == ref })
		if ok && !known && depth(ref) <= c.Depth {
			all = append(all, Prediction{ref, c.Text, int64(c.History.judged().mean())})
		}
	}
	return all
}

// Observe tests the templates, and proposes new ones for what none of them has named. If an observation is beyond
// MaxRequests or MaxObjects, only its Fetched count, as wasted: in a part of it right predictions would look wrong.
func (l *Learner) Observe(o Observation) {
	if len(o.Requests) > MaxRequests || len(o.Read) > MaxObjects {
		o.Requests, o.Read = nil, nil
	}
	l.propose(o, l.test(o))
	slices.SortStableFunc(l.candidates, better)
}

// test tests the templates with an observation. It returns the objects that were read and that a template names.
func (l *Learner) test(o Observation) (named map[string]bool) {
	read, fetched := sizes(o.Read), sizes(o.Fetched)
	named = map[string]bool{}
	predicted := map[string]bool{} // by the candidates so far
	for _, c := range l.candidates {
		c.idle = min(c.idle+1, idleLong)
		for _, ref := range c.makes(o.Requests) {
			bytes, right := read[ref]
			if right {
				named[ref] = true
			}
			if predicted[ref] {
				continue
			}
			// A client must not make the node look into deeper directories than the program does.
			if deep := depth(ref); deep > c.Depth {
				if right {
					c.Depth = deep
				}
				continue
			}
			predicted[ref] = c.Proven
			if !right { // an object that was not fetched counts as one like the others
				bytes = max(fetched[ref], c.History.judged().mean())
			}
			c.note(o.Cold, right, bytes)
		}
		c.judge()
	}
	l.settle(read, fetched, predicted)
	return named
}

// settle changes the credit by what was fetched. While the credit is below 0, what would have been fetched pays it off.
// If all goes well, the credit approaches the bytes of 8 observations. This is enough to unlearn a template and learn
// another one.
func (l *Learner) settle(read, fetched map[string]float64, predicted map[string]bool) {
	if l.credit > 0 && len(fetched) > 0 {
		l.credit *= creditDecay
	}
	for ref, bytes := range fetched {
		if _, right := read[ref]; right {
			l.credit += bytes * MaxWaste / (1 - MaxWaste)
		} else {
			l.credit -= bytes
		}
	}
	for ref, would := range predicted {
		if _, was := fetched[ref]; would && !was && l.credit < 0 {
			l.credit = min(0, l.credit+read[ref]*regain)
		}
	}
	l.credit = min(max(l.credit, -maxCredit), maxCredit)
}

// add begins to test a template that names what the request has read. If there is no room, it takes the place of the
// worst one that is not in use.
func (l *Learner) add(text string, r Request, read string) {
	if slices.ContainsFunc(l.candidates, func(c *candidate) bool { return c.Text == text }) {
		return
	}
	c := &candidate{Text: strings.Clone(text), Depth: depth(read)}
	if c.parse() != nil {
		return
	}
	if ref, ok := r.expand(c.template); !ok || ref != read {
		return
	}
	if len(l.candidates) < MaxTemplates {
		l.candidates = append(l.candidates, c)
		return
	}
	worst := slices.MinFunc(l.candidates, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(number(a.inUse()), number(b.inUse())), cmp.Compare(a.rate(), b.rate()))
	})
	if !worst.inUse() {
		*worst = *c
	}
}

// Templates returns what has been learned, the best first: all templates that were right once.
func (l *Learner) Templates() []Template {
	var all []Template
	for _, c := range l.candidates {
		if r := c.History.judged(); r.Hits > 0 {
			all = append(all, Template{c.Text, r.Hits, r.Tests, int64(r.mean()), r.waste(), c.Proven})
		}
	}
	return all
}

// sizes are those of the objects by their references. An empty one counts as a byte, so that its waste does.
func sizes(all []Object) map[string]float64 {
	bytes := make(map[string]float64, len(all))
	for _, o := range all {
		bytes[o.Reference] = min(max(float64(o.Bytes), 1), maxBytes)
	}
	return bytes
}

func depth(reference string) int { return strings.Count(reference, "/") }

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
