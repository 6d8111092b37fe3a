package record_test

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/record"
)

func drawn(t *rapid.T) record.Record {
	size := rapid.Int64Range(0, 3*digest.Block).Draw(t, "size")
	r := record.Record{Namespace: rapid.String().Draw(t, "namespace"), Store: "edge", Reference: rapid.String().Draw(t, "reference"),
		Source: "s3", Size: size, Version: rapid.String().Draw(t, "version"), ContentType: "text/plain",
		Asked: time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "asked"), 5).UTC(), Used: time.Unix(9, 0).UTC(),
		Said: time.Duration(rapid.Int64().Draw(t, "said")), Outside: rapid.Bool().Draw(t, "outside"), Unchecked: rapid.Bool().Draw(t, "unchecked")}
	if size > 0 && rapid.Bool().Draw(t, "digests") {
		r.Sums = bytes.Repeat([]byte{7}, int(digest.Length(size)))
	}
	return r
}

// What is read is what was noted, and a record that misses its end, or has a bit flipped, is none.
func TestARecordIsReadWholeOrNotAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawn(t)
		b, err := want.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := record.Parse(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v was read as %+v, %v", want, got, err)
		}
		if _, err := record.Parse(b[:rapid.IntRange(0, len(b)-1).Draw(t, "torn")]); err == nil {
			t.Error("a torn record was read")
		}
		b[rapid.IntRange(0, len(b)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := record.Parse(b); err == nil {
			t.Error("a damaged record was read")
		}
	})
}

// Two references that are no text must not become one.
func TestWhatIsNoTextIsNotNoted(t *testing.T) {
	if b, err := (record.Record{Reference: "s3://b/\xff"}).Bytes(); err == nil {
		t.Errorf("noted as %q", b)
	}
}

func FuzzParse(f *testing.F) {
	b, err := record.Record{Reference: "s3://b/k", Size: 1, Sums: make([]byte, 32), Asked: time.Unix(1, 0)}.Bytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:len(b)-32])
	f.Add([]byte("headstart record 1\n{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		sum := digest.OfBlock(b) // else nothing but this is ever looked at
		r, err := record.Parse(append(bytes.Clone(b), sum[:]...))
		if err != nil {
			return
		}
		if r.Size < 0 || len(r.Sums) > 0 && int64(len(r.Sums)) != digest.Length(r.Size) {
			t.Errorf("%+v", r)
		}
		again, err := r.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if same, err := record.Parse(again); err != nil || !reflect.DeepEqual(same, r) {
			t.Errorf("%+v was noted as %+v, %v", r, same, err)
		}
	})
}
