package prefetch

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// Whatever a client sends, a request is either untouched, answered, or passed on with
// a hint that says the same as the request's own headers.
func TestHintAndRequestAgree(t *testing.T) {
	in, err := newTable(&filterapi.Config{}).function(functions["fire"])
	if err != nil {
		t.Fatal(err)
	}
	name := rapid.SampledFrom([]string{"x-bucket", "x-key", "x-other"})
	text := rapid.OneOf(rapid.SampledFrom([]string{"videos", "a/b", "..", ""}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		headers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [2]string {
			return [2]string{name.Draw(t, "name"), text.Draw(t, "value")}
		}), 0, 4).Draw(t, "headers")
		asked := 0
		d := in.decide(headers, func() string { asked++; return "id" })

		names := 0
		for _, h := range headers {
			if h[0] == "x-bucket" || h[0] == "x-key" {
				names++
			}
		}
		switch {
		case names == 0:
			if d.set != nil || d.tell != nil || d.reply != nil {
				t.Fatalf("a request without input is touched: %+v", d)
			}
		case d.reply != nil:
			told := [][2]string{{filterapi.HeaderReason, d.reply.Title}, {filterapi.HeaderField, d.reply.Field}}
			if d.set != nil || !slices.Equal(d.tell[4:], told) || asked != 0 || d.reply.Status != 400 || !strings.HasPrefix(d.reply.Field, "header x-") {
				t.Fatalf("a refused request is %+v", d)
			}
		default:
			want := [][2]string{{filterapi.HeaderRequest, "id"}, {filterapi.HeaderInput, "s3://" + value(headers, "x-bucket") + "/" + value(headers, "x-key")}}
			if names != 2 || asked != 1 || !slices.Equal(d.set, want) || !slices.Equal(d.tell[4:], want) {
				t.Fatalf("a request with input is %+v", d)
			}
		}
	})
}

// The daemon hears of an observed function's request what it would hear of an active one's, as an observation, and the request
// stays as it is, in a mesh, too.
func TestAnObservedRequestStaysAsItIs(t *testing.T) {
	const active = `{"name":"shop/watched","input":"s3://videos/{header.x-key}","inputs":{"mask":"s3://masks/{header.x-mask}"}}`
	for _, c := range []*filterapi.Config{{}, {IngressEndpoint: "/run/ingress.sock"}} {
		observed, err := newTable(c).function(functions["watched"])
		if err != nil {
			t.Fatal(err)
		}
		as, err := newTable(c).function(active)
		if err != nil {
			t.Fatal(err)
		}
		for _, headers := range [][][2]string{
			nil, {{"x-key", "a"}}, {{"x-key", "a"}, {"x-mask", "b"}}, {{"x-mask", "b"}}, {{"x-key", "a"}, {"x-key", "b"}}, {{"x-key", "../a"}},
		} {
			d := observed.decide(headers, func() string { return "id" })
			want := as.decide(headers, func() string { return "id" })
			if want.tell == nil {
				want.tell = as.message("")
			}
			want.tell[pathAt][1] = "/v1/observation"
			if d.set != nil || d.reply != nil || !slices.Equal(d.tell, want.tell) {
				t.Errorf("%q: %+v, want what is told of %+v", headers, d, want)
			}
		}
	}
}
