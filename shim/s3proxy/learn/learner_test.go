package learn_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/s3proxy/learn"
)

// words are few, so that values are found in keys, and some of them are hostile.
var words = rapid.SampledFrom([]string{
	"frame7", "cam1", "7", "a b", "a%20b", "ä", "..", ".", "", "{x}", "}", "%", "%zz", "a/b", "/", "x|y", "\x00",
	"net.bin", strings.Repeat("long", 300),
})

func drawCall(t *rapid.T) call {
	word := func(label string) string { return words.Draw(t, label) }
	c := call{target: word("target"), header: map[string]string{}}
	if rapid.Bool().Draw(t, "path") {
		c.target = "/" + word("segment") + "/" + word("segment") + "?key=" + word("value") + "&" + word("parameter")
	}
	for range rapid.IntRange(0, 4).Draw(t, "headers") {
		c.header[fmt.Sprint("x-", rapid.IntRange(0, 3).Draw(t, "name"))] = word("value")
	}
	for range rapid.IntRange(0, 3).Draw(t, "reads") {
		parts, joint := rapid.SliceOfN(words, 1, 3), rapid.SampledFrom([]string{"/", "-", ""})
		c.reads = append(c.reads, bucket(strings.Join(parts.Draw(t, "key"), joint.Draw(t, "joint"))))
	}
	return c
}

// asReference is the request as those see it who parse templates.
func (c call) asReference() reference.Request {
	return reference.Request{Target: c.target, Header: func(name string) []string {
		if value, ok := c.header[name]; ok {
			return []string{value}
		}
		return nil
	}}
}

// All templates have named what was read. Predictions are in the bucket, and no deeper than what was read.
func TestTemplatesNameWhatWasRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := learn.New()
		var seen []call
		var groups [][]call
		deepest := 0
		var total figures
		var worst int64
		for range rapid.IntRange(1, 60).Draw(t, "observations") {
			var calls []call
			if len(seen) > 0 && rapid.IntRange(0, 3).Draw(t, "again") > 0 {
				calls = append(calls, rapid.SampledFrom(seen).Draw(t, "call"))
			}
			for range rapid.IntRange(0, 2).Draw(t, "calls") {
				calls = append(calls, drawCall(t))
			}
			for _, c := range calls {
				for _, p := range l.Predict(c.request()) {
					if !strings.HasPrefix(p.Reference, bucket("")) || strings.Count(p.Reference, "/") > deepest {
						t.Fatalf("predicts %q", p.Reference)
					}
				}
			}
			for _, c := range calls {
				for _, ref := range c.reads {
					deepest = max(deepest, strings.Count(ref, "/"))
				}
			}
			f := serve(l, true, calls...)
			total.add(f)
			worst = max(worst, f.wasted)
			seen, groups = append(seen, calls...), append(groups, calls)
		}
		saved := float64(total.fetched - total.wasted)
		if float64(total.wasted) > saved/4+float64(total.readBytes)/20+float64(worst)+1 {
			t.Fatalf("the bound of waste is exceeded: %v", total)
		}
		all := l.Templates()
		if len(all) > learn.MaxTemplates {
			t.Fatalf("%d templates", len(all))
		}
		for _, got := range all {
			parsed, err := reference.ParseTemplate(got.Text)
			if err != nil || got.Right > got.Tested || got.Right < 1 || got.Waste < 0 || got.Waste > 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			hasNamed := func(group []call) bool {
				return slices.ContainsFunc(group, func(c call) bool {
					ref, ok, _ := parsed.Expand(c.asReference())
					return ok && slices.ContainsFunc(group, func(c call) bool { return slices.Contains(c.reads, ref) })
				})
			}
			if !slices.ContainsFunc(groups, hasNamed) {
				t.Fatalf("no request has made %s name what was read", got.Text)
			}
		}
		data, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		again, err := learn.Parse(data)
		if err != nil || !reflect.DeepEqual(again.Templates(), all) {
			t.Fatalf("%s is read as %+v, %v", data, again, err)
		}
		for _, c := range seen {
			if r := c.request(); !reflect.DeepEqual(again.Predict(r), l.Predict(r)) {
				t.Fatal("predicts differently when it is read again")
			}
		}
	})
}

func TestWhatIsTooMuchNamesNothing(t *testing.T) {
	l := learn.New()
	for range 10 {
		serve(l, true, call{"/a?key=frame7", map[string]string{"x-key": "frame7"}, []string{bucket("frame7.jpg")}})
	}
	const value = "frame8"
	many, large := http.Header{"X-Key": {value}}, http.Header{"X-Key": {value}}
	for i := range 1000 {
		many.Set(fmt.Sprint("x-", i), value)
	}
	for i := range 6 {
		large.Set(fmt.Sprint("x-", i), strings.Repeat("a", 3000))
	}
	of := func(key string) http.Header { return http.Header{"X-Key": {key}} }
	for name, r := range map[string]learn.Request{
		"1000 headers":             learn.NewRequest("/", many),
		"large headers":            learn.NewRequest("/", large),
		"a header twice":           learn.NewRequest("/", http.Header{"X-Key": {value, value}}),
		"a large value":            learn.NewRequest("/", of(strings.Repeat("a", 64<<10))),
		"a long target":            learn.NewRequest("/?key="+value+"&b="+strings.Repeat("a", 64<<10), nil),
		"1000 parameters":          learn.NewRequest("/?key="+value+strings.Repeat("&", 1000), nil),
		"1000 segments":            learn.NewRequest(strings.Repeat("/a", 1000)+"?key="+value, nil),
		"climbing":                 learn.NewRequest("/?key=..%2Fkey", of("../../secrets/key")),
		"a deeper directory":       learn.NewRequest("/?key=a%2Fb", of("a/b")),
		"control characters":       learn.NewRequest("/?key=%00", of("a\x00b")),
		"a % that encodes nothing": learn.NewRequest("/?key=%zz", nil),
	} {
		for _, p := range l.Predict(r) {
			if p.Reference != bucket("frame7.jpg") { // the literal, which was read each time
				t.Errorf("%s: predicts %q", name, p.Reference)
			}
		}
	}
	if all := l.Predict(learn.NewRequest("/", http.Header{"X-Key": {value}})); len(all) != 2 {
		t.Errorf("predicts %v", all)
	}
}

// One object that is much larger than the others stops its template, and all predictions until others have made up
// for it.
func TestALargeObjectThatIsWastedCosts(t *testing.T) {
	l := learn.New()
	ask := func(key string) learn.Request { return learn.NewRequest("/", http.Header{"X-Key": {key}}) }
	observe := func(i int) {
		r := ask(fmt.Sprint("k", i))
		read := []learn.Object{{Reference: bucket(fmt.Sprint("k", i)), Bytes: 1e6}}
		o := learn.Observation{Requests: []learn.Request{r}, Read: read, Cold: true}
		if len(l.Predict(r)) > 0 {
			o.Fetched = read
		}
		l.Observe(o)
	}
	for i := range 50 {
		observe(i)
	}
	r := ask("huge")
	if len(l.Predict(r)) != 1 {
		t.Fatal("predicts nothing")
	}
	l.Observe(learn.Observation{
		Requests: []learn.Request{r}, Fetched: []learn.Object{{Reference: bucket("huge"), Bytes: 20e6}}, Cold: true,
	})
	if all := l.Templates(); all[0].Proven || all[0].Waste < learn.MaxWaste || all[0].Right != all[0].Tested-1 {
		t.Errorf("%+v", all[0])
	}
	silent := 0
	for i := 50; len(l.Predict(r)) == 0; i++ {
		if silent++; silent > 1000 {
			t.Fatal("predicts nothing any more")
		}
		observe(i)
	}
	if t.Log(silent); silent < 12e6/5e4 {
		t.Errorf("predicts again after %d requests", silent)
	}
}

func TestAnObservationBeyondTheBoundsOnlyCosts(t *testing.T) {
	l := learn.New()
	for i := range 20 {
		o := learn.Observation{Cold: true}
		for range learn.MaxRequests + 1 {
			o.Requests = append(o.Requests, learn.NewRequest("/", http.Header{"X-Key": {fmt.Sprint("k", i)}}))
		}
		o.Read = objects([]string{bucket(fmt.Sprint("k", i))})
		l.Observe(o)
	}
	if all := l.Templates(); len(all) > 0 {
		t.Errorf("%+v", all)
	}

	r := learn.NewRequest("/", nil)
	for range 10 {
		serve(l, true, call{"/", nil, []string{bucket("net")}})
	}
	if len(l.Predict(r)) != 1 {
		t.Fatal("predicts nothing")
	}
	fetched := []learn.Object{{Reference: bucket("net"), Bytes: 1e9}}
	l.Observe(learn.Observation{Requests: make([]learn.Request, learn.MaxRequests+1), Fetched: fetched})
	if all := l.Predict(r); len(all) > 0 || !l.Templates()[0].Proven {
		t.Errorf("predicts %v", all)
	}
}

// Some keys are more popular than the template would have to be to predict.
func TestAPopularObjectIsNotPredictedForRequestsThatNameAnother(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	l := learn.New()
	var f figures
	for i := range 1000 {
		key := "hot"
		if rng.Float64() < 0.1 {
			key = fmt.Sprint("k", rng.Uint64())
		}
		g := serve(l, true, call{"/", map[string]string{"x-key": key}, []string{bucket(key)}})
		if i >= 100 {
			f.add(g)
		}
	}
	if t.Log(f); f.hitRatio() < 0.99 || f.waste() > 0.01 {
		t.Error(f)
	}
}

// What a program writes and reads again must not push out what only some requests read.
func TestARareRouteIsLearnedAmongNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	l := learn.New()
	var f figures
	for i := range 1600 {
		key := fmt.Sprintf("%016x", rng.Uint64())
		if i%40 > 0 {
			serve(l, true, call{"/", map[string]string{"x-dir": "out"}, []string{bucket("out/" + key)}})
			continue
		}
		if g := serve(l, true, call{"/rare/" + key, nil, []string{bucket(key)}}); i >= 800 {
			f.add(g)
		}
	}
	if t.Log(f); f.hitRatio() < 0.99 {
		t.Error(f)
	}
}

func TestEachOfSeveralObjectsHasItsTurn(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	l := learn.New()
	for i := range 100 {
		var reads []string
		for range 20 {
			reads = append(reads, bucket(fmt.Sprint("out/", rng.Uint64())))
		}
		key := fmt.Sprint("k", i)
		serve(l, true, call{"/", map[string]string{"x-key": key}, append(reads, bucket(key))})
	}
	if all := l.Templates(); len(all) != 1 || !all[0].Proven {
		t.Errorf("%+v", all)
	}
}

func TestTemplatesInUseStayAndOthersMakeRoom(t *testing.T) {
	l := learn.New()
	const objects, each = learn.MaxTemplates + 8, 15
	for range 100 {
		var reads []string
		for i := range objects {
			reads = append(reads, bucket(fmt.Sprint(i)))
		}
		serve(l, true, call{"/", nil, reads})
	}
	proven := 0
	for _, one := range l.Templates() {
		proven += map[bool]int{true: 1}[one.Proven]
	}
	if all := l.Predict(learn.NewRequest("/", nil)); proven != learn.MaxTemplates || len(all) != learn.MaxPredictions {
		t.Errorf("%d are proven, %v", proven, all)
	}

	// Clients whose headers have another name from time to time.
	l = learn.New()
	var last figures
	for i := range objects * each {
		key := fmt.Sprint("k", i)
		last = serve(l, true, call{"/", map[string]string{fmt.Sprint("x-", i/each): key}, []string{bucket(key)}})
	}
	if last.hits != 1 {
		t.Errorf("the newest is not learned: %+v", l.Templates())
	}
}

// With 10 requests under way all the time no request is ever alone.
func TestABusyInstanceIsLearnedFrom(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	zipf := rand.NewZipf(rng, 1.1, 1, 99)
	l, g := learn.New(), learn.Group{Cold: true}
	type running struct {
		call
		in bool
	}
	var under []running
	observed := 0
	for range 2000 {
		for len(under) < 10 {
			key := fmt.Sprint("k", zipf.Uint64())
			reads := []string{bucket(key + ".jpg"), bucket("out/" + fmt.Sprint(rng.Uint64()))}
			c := call{"/", map[string]string{"x-key": key}, reads}
			under = append(under, running{c, g.Begin(c.request())})
		}
		i := rng.IntN(len(under))
		for _, o := range objects(under[i].reads) {
			g.Read(o)
		}
		if under[i].in {
			if o, ok := g.End(); ok {
				l.Observe(o)
				observed++
			}
		}
		under = slices.Delete(under, i, i+1)
	}
	all := l.Templates()
	t.Log(observed, all)
	const want = "s3://videos/{header.x-key}.jpg"
	if len(all) == 0 || all[0].Text != want || all[0].Right < all[0].Tested*95/100 {
		t.Fatalf("%+v", all)
	}
	for _, other := range all[1:] {
		if other.Proven {
			t.Errorf("is proven: %+v", other)
		}
	}
}

func TestAGroupEndsWithItsLastRequest(t *testing.T) {
	var g learn.Group
	object := func(i int) learn.Object { return learn.Object{Reference: bucket(fmt.Sprint(i)), Bytes: int64(i)} }
	g.Read(object(1)) // of no request
	g.Begin(learn.Request{})
	g.Begin(learn.Request{})
	g.Read(object(2))
	if _, ok := g.End(); ok {
		t.Error("ends with the first request")
	}
	g.Read(object(3))
	g.Read(object(2))
	g.Fetched(object(4))
	o, ok := g.End()
	if want := (learn.Observation{
		Requests: make([]learn.Request, 2),
		Read:     []learn.Object{object(2), object(3)}, Fetched: []learn.Object{object(4)},
	}); !ok || !reflect.DeepEqual(o, want) {
		t.Errorf("%v, %+v", ok, o)
	}

	g.Cold = true
	g.Read(object(5))
	for i := range learn.MaxRequests + 1 {
		if in := g.Begin(learn.Request{}); in != (i < learn.MaxRequests) {
			t.Errorf("takes request %d: %v", i, in)
		}
	}
	for i := range learn.MaxRequests {
		if o, ok = g.End(); ok != (i == learn.MaxRequests-1) {
			t.Errorf("ends with request %d: %v", i, ok)
		}
	}
	if !o.Cold || len(o.Read) != 1 || g.Cold {
		t.Errorf("%+v", o)
	}

	g.Begin(learn.Request{})
	for i := range learn.MaxObjects + 1 {
		g.Read(object(i))
	}
	g.Fetched(object(1))
	if o, ok := g.End(); !ok || !reflect.DeepEqual(o, learn.Observation{Fetched: []learn.Object{object(1)}}) {
		t.Errorf("a part of what was read is observed: %+v", o)
	}
}

func FuzzParse(f *testing.F) {
	l := learn.New()
	for i := range 10 {
		key := fmt.Sprint("k", i)
		reads := []string{bucket(key + ".jpg"), bucket("net")}
		serve(l, i%2 == 0, call{"/v1/" + key, map[string]string{"x-key": key}, reads})
	}
	data, err := json.Marshal(l)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	for _, text := range []string{
		"", "{}", "null", `{"templates":[null]}`, `{"credit":1e300}`, `{"templates":[{"text":"s3://{header.x-a}/b"}]}`,
		`{"templates":[{"text":"s3://abc/{header.cookie}"}]}`, `{"templates":[{"text":"s3://abc/{query.token}"}]}`,
		`{"templates":[{"text":"s3://abc/b"},{"text":"s3://abc/b"}]}`,
		`{"templates":[{"text":"s3://abc/b","history":{"cold":{"hits":1}}}]}`,
		`{"templates":[{"text":"s3://abc/b","history":{"cold":{"right":-1}}}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := learn.Parse(data)
		if err != nil {
			return
		}
		first, err := json.Marshal(l)
		if err != nil || len(first) > learn.MaxStateBytes {
			t.Fatalf("%d bytes, %v", len(first), err)
		}
		for _, got := range l.Templates() {
			parsed, err := reference.ParseTemplate(got.Text)
			if _, literal := parsed.Bucket(); err != nil || !literal {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		again, err := learn.Parse(first)
		if err != nil {
			t.Fatal(err)
		}
		if second, _ := json.Marshal(again); string(first) != string(second) {
			t.Fatalf("%s is written as %s", first, second)
		}
		serve(l, true, call{"/v1/k1", map[string]string{"x-key": "k1"}, []string{bucket("k1.jpg")}})
	})
}

func TestParseRefuses(t *testing.T) {
	one := func(rest string) string { return `{"templates":[{"text":"s3://abc/` + rest + `}]}` }
	for text, says := range map[string]string{
		"":                     "unexpected end",
		`{"templates":[null]}`: "empty template",
		`{"credit":1e300}`:     "impossible credit",
		`{"templates":[{"text":"s3://{header.x-a}/b"}]}`:                         "bucket that clients name",
		one(`{header.via}"`):                                                     "header",
		one(`{query.token}"`):                                                    "parameter",
		one(`b"},{"text":"s3://abc/b"`):                                          "there twice",
		one(`b","depth":-1`):                                                     "impossible record",
		one(`b","history":{"cold":{"right":-1}}`):                                "impossible record",
		one(`b","history":{"warm":{"wasted":1e20}}`):                             "impossible record",
		one(`b","history":{"warm":{"hits":1}}`):                                  "impossible record",
		one(`b","history":{"warm":{"right":21}}`):                                "impossible record",
		one(`b"` + strings.Repeat(`},{"text":"s3://abc/b"`, learn.MaxTemplates)): "33 templates",
		one(strings.Repeat("b", learn.MaxStateBytes) + `"`):                      "at most",
	} {
		if _, err := learn.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.64s: error %v, want one that says %q", text, err, says)
		}
	}
}

// trained is a learner with 16 templates, and a request of 20 headers.
func trained(b *testing.B) (*learn.Learner, func(i int) (string, http.Header, []learn.Object)) {
	normal := func(i int) (string, http.Header, []learn.Object) {
		key := fmt.Sprintf("%08d", i)
		header := http.Header{"X-Key": {key}}
		for n := range 15 {
			header.Set(fmt.Sprint("X-Other-", n), fmt.Sprint("another value ", n))
		}
		for _, name := range []string{"Accept", "User-Agent", "Content-Type", "X-Request-Id"} {
			header.Set(name, "application/json")
		}
		read := []learn.Object{{Reference: bucket(key), Bytes: 1e6}}
		for n := range 8 {
			read = append(read, learn.Object{Reference: bucket(fmt.Sprint("net", n)), Bytes: 1e6})
		}
		for n := range 7 {
			read = append(read, learn.Object{Reference: bucket(fmt.Sprintf("%s/%d.jpg", key, n)), Bytes: 1e6})
		}
		return "/v1/detect?a=1&key=" + key, header, read
	}
	l := learn.New()
	for i := range 100 {
		target, header, read := normal(i)
		r := learn.NewRequest(target, header)
		l.Observe(learn.Observation{Requests: []learn.Request{r}, Read: read, Cold: true})
	}
	if n := len(l.Templates()); n < 16 {
		b.Fatalf("%d templates", n)
	}
	return l, normal
}

func BenchmarkPredictAndObserve(b *testing.B) {
	l, normal := trained(b)
	target, header, read := normal(1234)
	for b.Loop() {
		r := learn.NewRequest(target, header)
		l.Predict(r)
		l.Observe(learn.Observation{Requests: []learn.Request{r}, Read: read, Cold: true})
	}
	b.ReportMetric(float64(len(l.Templates())), "templates")
}

// A client sends what costs most, and the program reads what no template names.
func BenchmarkHostile(b *testing.B) {
	key := strings.Repeat("a-/", 330)
	few, many := http.Header{}, http.Header{}
	for i := range 120 {
		few.Set(fmt.Sprint("X-", i), strings.Repeat("a-/%41", 20))
	}
	for i := range 1000 {
		many.Set(fmt.Sprint("X-", i), key)
	}
	path := strings.Repeat("/aaa", 15)
	long := http.Header{"X-Key": {strings.Repeat("a/", 32<<10)}}
	for name, of := range map[string]struct {
		target string
		header http.Header
	}{
		"the most that is kept": {path + "?" + strings.Repeat("key=a-%41/&", 60), few},
		"1000 headers":          {path, many},
		"64 KiB":                {path + "?" + strings.Repeat("a", 64<<10), long},
	} {
		b.Run(name, func(b *testing.B) {
			l, _ := trained(b)
			var read []learn.Object
			for i := range 16 {
				read = append(read, learn.Object{Reference: bucket(fmt.Sprint(key, i)), Bytes: 1e6})
			}
			for b.Loop() {
				o := learn.Observation{Read: read, Cold: true}
				for range learn.MaxRequests {
					r := learn.NewRequest(of.target, of.header)
					l.Predict(r)
					o.Requests = append(o.Requests, r)
				}
				l.Observe(o)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*learn.MaxRequests), "us/request")
		})
	}
}
