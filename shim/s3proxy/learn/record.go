package learn

import "math"

const (
	// MaxWaste is the share of wasted bytes in all predicted bytes above which predictions stop.
	MaxWaste = 0.2
	// decay is the weight of a trial beside the next one, so a record is one of the last 20 trials. A template that was
	// always right is given up after 5 wrong trials: 0.95^5 < 1 - MaxWaste.
	decay = 0.95
	// leastRate is for the lower bound of the hit rate. 5 right trials in a row reach it, 4 do not.
	leastRate = 0.8
	// promising is the rate after one right trial.
	promising = 0.5
	// handful is the weight of 5 trials, with which a record is judged alone.
	handful = 4.5
	// regain is the share of the bytes which predictions would have saved that pays off a credit below 0: 20 objects
	// that were right pay for one that was wasted.
	regain = 0.05
	// creditDecay bounds the credit: 0.25 / (1 - 0.97) is 8. maxCredit is that of the largest observations.
	creditDecay, maxCredit = 0.97, 8.5 * MaxObjects * maxBytes
	// maxBytes is the largest object of S3, and maxTrials more than the weight of all trials, 1 / (1 - decay).
	maxBytes, maxTrials = 50e12, 20.5
	// maxTests is more than there can be in the life of a cluster.
	maxTests = 1 << 50
)

// record is how often predictions were right, and what they cost. Older trials lose weight.
type record struct {
	Right  float64 `json:"right"` // trials
	Wrong  float64 `json:"wrong"`
	Read   float64 `json:"read"` // bytes
	Wasted float64 `json:"wasted"`
	// Hits and Tests are those of all time.
	Hits  int64 `json:"hits"`
	Tests int64 `json:"tests"`
}

func (r *record) note(right bool, bytes float64) {
	r.Right, r.Wrong, r.Read, r.Wasted = r.Right*decay, r.Wrong*decay, r.Read*decay, r.Wasted*decay
	r.Tests++
	if right {
		r.Right, r.Read = r.Right+1, r.Read+bytes
		r.Hits++
	} else {
		r.Wrong, r.Wasted = r.Wrong+1, r.Wasted+bytes
	}
}

func (r record) trials() float64 { return r.Right + r.Wrong }

// mean is the size of the objects that were read, in bytes.
func (r record) mean() float64 { return ratio(r.Read, r.Right) }

// waste is the share of wasted bytes.
func (r record) waste() float64 { return ratio(r.Wasted, r.Read+r.Wasted) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// rate is the lower end of Wilson's interval for the hit rate, one standard deviation wide on each side (Wilson,
// "Probable inference, the law of succession, and statistical inference", JASA 1927).
func (r record) rate() float64 {
	n := r.trials()
	if n == 0 {
		return 0
	}
	p := r.Right / n
	return (p + 1/(2*n) - math.Sqrt(p*(1-p)/n+1/(4*n*n))) / (1 + 1/n)
}

func (r record) possible() bool {
	return r.Right >= 0 && r.Wrong >= 0 && r.trials() <= maxTrials &&
		r.Read >= 0 && r.Wasted >= 0 && r.Read+r.Wasted <= maxTrials*maxBytes &&
		r.Hits >= 0 && r.Hits <= r.Tests && r.Tests <= maxTests
}

// history separates cold observations, those of instances that had just started, from warm ones. A running program may
// have in memory what a new one has to read.
type history struct {
	Cold record `json:"cold"`
	Warm record `json:"warm"`
}

func (h *history) note(cold, right bool, bytes float64) {
	if cold {
		h.Cold.note(right, bytes)
	} else {
		h.Warm.note(right, bytes)
	}
}

// byCold tells that the cold record is long enough to decide alone. Only cold requests get predictions.
func (h history) byCold() bool { return h.Cold.trials() >= handful }

// judged is the record that decides.
func (h history) judged() record {
	c, w := h.Cold, h.Warm
	if h.byCold() {
		return c
	}
	return record{
		c.Right + w.Right, c.Wrong + w.Wrong, c.Read + w.Read, c.Wasted + w.Wasted, c.Hits + w.Hits, c.Tests + w.Tests,
	}
}

func (h history) possible() bool { return h.Cold.possible() && h.Warm.possible() }
