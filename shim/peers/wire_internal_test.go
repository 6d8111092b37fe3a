package peers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// What is asked is what arrives, whatever the object's name.
func TestAQuestionArrivesAsItIs(t *testing.T) {
	word := func(most int) *rapid.Generator[string] { return rapid.StringN(1, -1, most) }
	rapid.Check(t, func(t *rapid.T) {
		q := question{Namespace: word(63).Draw(t, "namespace"), Store: word(200).Draw(t, "store"),
			Reference: word(1024).Draw(t, "reference"), Held: rapid.StringN(0, -1, 100).Draw(t, "held"),
			Version: word(100).Draw(t, "version"), From: rapid.Int64Range(0, 1<<30).Draw(t, "from"),
			Only: rapid.Bool().Draw(t, "only"), Site: "0123456789abcdef"}
		if q.Only {
			q.Write = rapid.StringN(0, -1, 40).Draw(t, "write")
		}
		if got, err := parseQuestion(q.query()); err != nil || got != q {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}

func FuzzQuestion(f *testing.F) {
	f.Add("namespace=a&store=b&reference=s3%3A%2F%2Fc%2Fd&from=3&version=v&only=true")
	f.Add("namespace=a&store=b&reference=%00&from=-1")
	f.Add("namespace=a&store=b&reference=s3%3A%2F%2Fc%2Fd&version=v&only=true&write=0123")
	f.Add("namespace=a&namespace=b&store=c&reference=d")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := parseQuestion(query)
		if err != nil {
			return
		}
		if again, err := parseQuestion(q.query()); err != nil || again != q || q.From < 0 || len(q.Reference) > questionMost || q.Namespace == "" {
			t.Errorf("%+v, %+v, %v", q, again, err)
		}
	})
}

// Whatever a peer answers: a fetch ends, with the object or with what the store has, and writes nothing beyond it.
func FuzzAnswer(f *testing.F) {
	object := `{"size":5,"version":"v"}`
	frame := func(kind byte, body string) string {
		return string(append(head(kind, len(body)), body...))
	}
	of := digest.OfBlock([]byte("hello"))
	sum := string(of[:])
	f.Add([]byte(frame(frameObject, object) + frame(frameBlock, sum+"hello")))
	f.Add([]byte(frame(frameObject, object) + frame(frameReferral, `["a","b"]`) + frame(frameDigest, sum)))
	f.Add([]byte(frame(frameSame, `{"fresh":5}`)))
	f.Add([]byte(frame(frameFailed, `{"title":"PeerBusy","status":503}`)))
	f.Add([]byte(frame(frameObject, object) + frame(frameBlock, sum+"hello, and more")))
	f.Add([]byte("b\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, said []byte) {
		p := New(Config{Node: "me", Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
		p.nodes = []string{"me", "peer", "a"}
		p.members, p.passes = map[string]string{"me": "", "peer": "", "a": ""}, map[string]string{"*": "pass"}
		p.client = &http.Client{Transport: answering(said)}
		k := objects.Key{Namespace: "n"}
		for i := 0; p.choices(k)[0] != "peer"; i++ {
			k.Reference = string(rune('a' + i))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		fromStore := errors.New("from the store")
		for _, held := range []string{"", "held"} {
			err := p.Fetch(fair.For(ctx, "n"), k, held, func(o source.Object) (io.WriterAt, error) { return limited(o.Size), nil },
				func(context.Context, source.Begin) error { return fromStore })
			_, said := errors.AsType[*problem.Problem](err)
			_, same := errors.AsType[*source.Unchanged](err)
			if err != nil && !errors.Is(err, fromStore) && !said && (!same || held == "") {
				t.Error(err)
			}
		}
	})
}

// answering is a peer that always answers with the same.
type answering []byte

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	_, _ = w.Write(a)
	return w.Result(), nil
}

// limited takes so many bytes.
type limited int64

func (l limited) WriteAt(p []byte, at int64) (int, error) {
	if at < 0 || at+int64(len(p)) > int64(l) {
		return 0, errors.New("written beyond the object")
	}
	return len(p), nil
}

// A liar's ten minutes are not shortened by its next failure.
func TestALiarsTime(t *testing.T) {
	p := New(Config{Node: "me", Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	p.failed(t.Context(), "liar", errLied)
	p.failed(t.Context(), "liar", errSilent)
	if left := time.Until(p.avoided["liar"]); left < avoidLiar/2 {
		t.Errorf("%v are left", left)
	}
}
