//go:build integration

package soak

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sync"

	"github.com/headstart-mesh/headstart/e2e/soak/plan"
)

// facts are what happened to all while a case was under way.
type facts struct {
	died, restarted, flooded bool
}

// titles are the problems that are documented.
var titles = sync.OnceValues(func() (map[string]bool, error) {
	page, err := os.ReadFile("../../docs/reference/errors.md")
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`<a id="(\w+)">`).FindAllSubmatch(page, -1) {
		all[string(m[1])] = true
	}
	return all, err
})

// verdict is what a case may end with.
type verdict struct {
	// right: the function's answer, whole.
	right bool
	// breaks: an answer that ends early.
	breaks bool
	// fails are the titles of problems.
	fails []string
}

// expected is what the case alone leads to.
func (r *run) expected() verdict {
	right := verdict{right: true}
	fails := func(titles ...string) verdict { return verdict{fails: titles} }
	switch r.Fault {
	case plan.StoreStalls, plan.StoreResets, plan.StoreTruncates, plan.ObjectChanges:
		switch r.Input {
		case plan.Stream: // of which nobody can tell whether the rest is of the same version
			right.fails = []string{"StoreUnavailable", "StoreTimeout"}
		case plan.Redis: // what watches for changes ends with its connection
			right.fails = []string{"StoreUnavailable", "StoreTimeout"}
		}
		if r.Fault == plan.ObjectChanges {
			right.fails = append(right.fails, "InputChanged")
		}
	case plan.StoreStallsForEver:
		return fails("StoreTimeout")
	case plan.StoreIsAway:
		return fails("StoreUnavailable")
	case plan.StoreRefuses:
		if r.Way == plan.Entry {
			return right
		}
		return fails("StoreForbidden")
	case plan.StoreLacks:
		return fails("InputNotFound")
	case plan.Shares:
		right.fails = []string{"InputChanged"}
	case plan.NodeDies:
		if r.Way == plan.Entry { // it comes again
			return right
		}
		if r.From == plan.Cloud { // whoever has the connection has died
			return verdict{breaks: true}
		}
		if r.Variant%plan.Moments == plan.DiesDelivered {
			return fails("PeerUnreachable")
		}
	case plan.PlacementRefused:
		if r.Way == plan.Entry {
			return right
		}
		return fails("Unschedulable")
	case plan.FunctionBreaksOff:
		if r.Way == plan.Entry { // whose consumer may be on the other node
			return fails("FunctionFailed", "PeerFailed")
		}
		return verdict{breaks: true}
	case plan.FunctionCloses:
		return fails("FunctionFailed")
	case plan.IDMalformed:
		return fails("RequestIDMalformed")
	case plan.Foreign:
		return fails("StoreNotAllowed", "InputReferenceMalformed")
	case plan.TooLarge:
		return fails("InputTooLarge")
	case plan.BufferFull:
		if r.Input.Stored() {
			return fails("BufferTooSmall", "BufferFull", "BufferQuota")
		}
	}
	return right
}

// with adds what happened to all.
func (v verdict) with(r *run, f facts) verdict {
	if f.died && r.touches(plan.Cloud) {
		v.breaks = true
		v.fails = append(v.fails, "PeerUnreachable", "PeerFailed", "InstanceGone", "ActivationTimeout")
	}
	if f.died && r.touches(plan.Cloud) && r.Fault == plan.StoreStallsForEver { // its second may end before the daemon is back
		v.fails = append(v.fails, "ReadyTimeout")
	}
	if f.died && r.Fault == plan.FunctionRefuses { // the try of a consumer that has died counts
		v.fails = append(v.fails, "FunctionRefused")
	}
	if f.restarted && r.Input == plan.Redis {
		v.fails = append(v.fails, "StoreUnavailable", "StoreTimeout", "InputNotFound", "InputChanged")
	}
	if f.restarted && r.Input == plan.Body {
		v.breaks = true
		v.fails = append(v.fails, "BufferUnavailable")
	}
	if f.flooded && r.Input.Stored() {
		v.fails = append(v.fails, "BufferFull", "BufferQuota")
	}
	if f.flooded && f.restarted && r.Input.Stored() { // only the tier that is away had room
		v.fails = append(v.fails, "BufferUnavailable")
	}
	if f.flooded && r.Fault == plan.TooLarge && r.Input == plan.Body { // the limit bounds what a node keeps
		v.right = true
	}
	return v
}

// touches tells whether the request was in a node's hands.
func (r *run) touches(n plan.Node) bool { return r.From == n || r.On == n || r.Way == plan.Entry }

// judge says what is wrong with how a case ended.
func (r *run) judge(o outcome, f facts) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := slices.Clone(r.wrong)
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.late {
		wrong("it took over %s", patience)
	}
	for _, s := range r.seen {
		errs = append(errs, r.check(s, f))
	}
	may := r.expected().with(r, f)
	if r.Way == plan.Entry {
		return errors.Join(append(errs, r.settled(o, may, f))...)
	}
	if r.entered > 1 && !(r.alone.Load() && r.entered == 2) {
		wrong("the function got it %d times", r.entered)
	}
	if err := r.moved(); err != nil {
		errs = append(errs, err)
	}
	switch {
	case o.left:
	case o.err != nil && may.breaks: // before the first byte: then the gateway has the word (ConnectionLost)
	case o.err != nil:
		wrong("there was no answer: %w", o.err)
	case o.status == http.StatusOK && o.broken != nil:
		if !may.breaks {
			wrong("its answer broke off: %w", o.broken)
		}
	case o.status == http.StatusOK:
		if !may.right {
			wrong("it was answered, and should have failed")
		}
		if len(r.seen) != 1 || o.report.Body != r.seen[0].Body || o.report.Body.Broken != "" {
			wrong("the answer is not the function's: %+v, of %+v", o.report, r.seen)
		}
		if !bytes.Equal(o.filler, r.Filler()) {
			wrong("%d bytes of the answer are not the function's %d", len(o.filler), r.Answer)
		}
	default:
		errs = append(errs, r.clear(o, may))
	}
	return errors.Join(errs...)
}

// moved checks that a request of whose node the daemon dies is placed again if nobody can have
// got it, once if its new node lives, and never if somebody has.
func (r *run) moved() error {
	if r.Fault != plan.NodeDies || r.From == plan.Cloud {
		return nil
	}
	placed, delivered := r.placements.Load(), r.Variant%plan.Moments == plan.DiesDelivered
	if delivered && placed != 1 || !delivered && (placed < 2 || placed > 2 && r.sparedLater()) {
		return fmt.Errorf("it was placed %d times", placed)
	}
	return nil
}

// clear checks that a failure says what it is, and is one of those that may be.
func (r *run) clear(o outcome, may verdict) error {
	known, err := titles()
	switch p := o.problem; {
	case err != nil:
		return err
	case o.broken != nil && may.breaks: // what breaks an answer off does so to one that says why there is none
		return nil
	case o.broken != nil:
		return fmt.Errorf("status %d without a whole problem: %w", o.status, o.broken)
	case p.Status != o.status || p.Detail == "" || !known[p.Title]:
		return fmt.Errorf("status %d with the problem %+v", o.status, p)
	case !slices.Contains(may.fails, p.Title):
		return fmt.Errorf("it failed with %s: %s; it may be right: %t, or fail with %v", p.Title, p.Detail, may.right, may.fails)
	}
	return nil
}

// check looks at what the function saw.
func (r *run) check(s report, f facts) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !r.ids[s.Request] {
		wrong("the function got it as request %s", s.Request)
	}
	if len(s.Stray) > 0 {
		wrong("the sandbox has files of others: %v", s.Stray)
	}
	body := r.isInput(s.Body)
	switch {
	case r.OwnBody:
		body = s.Body.SHA256 == digest(r.Own())
	case r.Input == plan.None:
		body = s.Body.Size == 0
	}
	if s.Body.Broken == "" && !body && !r.alone.Load() {
		wrong("the function got a body of %d bytes, %s, which is not the request's", s.Body.Size, s.Body.SHA256)
	}
	ended := f.died && r.touches(plan.Cloud) // and with it perhaps the request, which the function does not know yet
	// One whose daemon was short of room, or of its Redis, may have put it where no file is.
	if s.File == nil && r.Input.Stored() && !r.Hidden && !ended && !f.flooded && !f.restarted {
		wrong("the function got no file of its input")
	}
	if s.File != nil && !s.Late && (s.File.Broken == "" && !r.isInput(*s.File) || s.File.Broken != "" && !ended) {
		wrong("the function got a file that is not the input: %+v", *s.File)
	}
	// What the socket gives is the input's, or visibly no more of it.
	excused := s.Late || ended || f.flooded || f.restarted || r.Fault == plan.ClientLeavesSending
	if s.Socket != nil && (s.Socket.Broken == "" && !r.isInput(*s.Socket) || s.Socket.Broken != "" && !excused) {
		wrong("the function has read by its socket what is not the input: %+v", *s.Socket)
	}
	if s.Got != "" && !s.Late && !ended {
		wrong("somebody got what is not his: %s", s.Got)
	}
	return errors.Join(errs...)
}

// isInput tells whether bytes are a version of the input that the request may have.
func (r *run) isInput(p part) bool {
	if r.Fault != plan.Shares {
		return r.known[p.SHA256]
	}
	s := &r.w.shared[r.Variant%plan.Shared]
	s.mu.Lock()
	defer s.mu.Unlock()
	version, ok := s.versions[p.SHA256]
	return ok && version >= r.floor
}
