package ingress_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// deliveries notes what instances work on.
type deliveries struct {
	mu   sync.Mutex
	open map[string]sandboxes.Delivery
	over []string
}

func (d *deliveries) Begin(instance string, what sandboxes.Delivery) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[string]sandboxes.Delivery{}
	}
	d.open[instance+" "+what.Request] = what
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.open, instance+" "+what.Request)
		d.over = append(d.over, what.Request)
	}
}

func (d *deliveries) of(id string) (sandboxes.Delivery, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	what, ok := d.open[target+" "+id]
	return what, ok
}

func (d *deliveries) ended(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open) == 0 && len(d.over) > 0 && d.over[len(d.over)-1] == id
}

// While a function works on a request, its input can be read besides, and the function's own
// calls are known to be of it. Afterwards nothing of it is.
func TestAnInstanceIsKnownToWorkOnARequest(t *testing.T) {
	var r *rig
	id := newID()
	r = newRig(t, func(w http.ResponseWriter, req *http.Request) {
		what, ok := r.deliveries.of(id)
		if !ok || what.Inputs[""] == nil || what.Depth != 3 || !strings.HasPrefix(what.Traceparent, "00-"+id) {
			t.Errorf("delivered as %+v, %t", what, ok)
			return
		}
		if depth := req.Header.Get("x-headstart-depth"); depth != "3" {
			t.Errorf("the function sees depth %q", depth)
		}
		content, err := what.Inputs[""].NewReader(context.Background())
		if err != nil {
			t.Error(err)
			return
		}
		defer content.Close()
		if _, err := content.(io.Seeker).Seek(4, io.SeekStart); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(w, content)
	})
	req := request(t, http.MethodGet, withInput, id, r.put("a", "", []byte("the content")), nil)
	req.Header.Set("x-headstart-depth", "3")
	if got := read(t, r.do(t, req).Body); got != "content" {
		t.Errorf("%q", got)
	}
	eventually(t, "it is not known any more", func() bool { return r.deliveries.ended(id) })
}

// A body that is the input is read while it comes, and never for whole when it is not.
func TestABodyIsReadBesides(t *testing.T) {
	var r *rig
	id := newID()
	pr, pw := io.Pipe()
	r = newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		what, ok := r.deliveries.of(id)
		if !ok || what.Inputs[""] == nil || what.Depth != 0 {
			t.Errorf("delivered as %+v, %t", what, ok)
			return
		}
		if object, err := what.Inputs[""].Object(t.Context()); err != nil || object.Size != -1 || object.ContentType != "text/plain" {
			t.Errorf("%+v, %v", object, err)
		}
		content, err := what.Inputs[""].NewReader(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		defer content.Close()
		half := make([]byte, 4)
		if _, err := io.ReadFull(content, half); err != nil || string(half) != "body" {
			t.Errorf("%q, %v", half, err)
		}
		_, _ = io.WriteString(pw, " and more")
		pw.Close()
		if err := what.Inputs[""].Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if object, err := what.Inputs[""].Object(t.Context()); err != nil || object.Size != 13 {
			t.Errorf("%+v, %v", object, err)
		}
		_, _ = io.Copy(w, content)
	})
	r.change(func(f *nodeapi.Function) { f.HasInput, f.BodyInput = false, true })
	req := request(t, http.MethodPost, withInput, id, "", io.MultiReader(strings.NewReader("body"), pr))
	req.Header.Set("Content-Type", "text/plain")
	if got := read(t, r.do(t, req).Body); got != " and more" {
		t.Errorf("%q", got)
	}
	// Whoever sends the body to the function closes it when it finds out.
	eventually(t, "the buffer is empty", func() bool { return r.buffer.Used() == 0 })
}
