package capability

import (
	"crypto/ed25519"
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newKey(t testing.TB) (ed25519.PrivateKey, ed25519.PublicKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return private, public
}

func example() Binding {
	return Binding{Request: "0123456789abcdef0123456789abcdef", Function: "default/video", Instance: "video-1",
		Input: "s3://videos/a.mjpeg", Inputs: "mask=s3://masks/a", Source: "edge-1", Target: "edge-2", Caller: "default/camera"}
}

// anyBinding has short fields of few letters, so that what stands in one may well stand in another.
func anyBinding() *rapid.Generator[Binding] {
	return rapid.Custom(func(t *rapid.T) (b Binding) {
		fields := reflect.ValueOf(&b).Elem()
		for i := range fields.NumField() {
			fields.Field(i).SetString(rapid.StringMatching(`[ab\x00:/]{0,4}`).Draw(t, "field"))
		}
		return b
	})
}

// A capability is good for its binding, and for no other.
func TestACapabilityIsForOneBinding(t *testing.T) {
	private, public := newKey(t)
	rapid.Check(t, func(t *rapid.T) {
		b, other := anyBinding().Draw(t, "binding"), anyBinding().Draw(t, "other")
		token := Sign(private, b, now)
		if _, _, err := Verify([]ed25519.PublicKey{public}, b, token); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Verify([]ed25519.PublicKey{public}, other, token); b != other && err == nil {
			t.Fatalf("that of %+v does for %+v", b, other)
		}
	})
}

// Each field counts, one that is added later as well.
func TestEachFieldIsSigned(t *testing.T) {
	private, public := newKey(t)
	token := Sign(private, example(), now)
	for i := range reflect.TypeFor[Binding]().NumField() {
		b := example()
		field := reflect.ValueOf(&b).Elem().Field(i)
		field.SetString(field.String() + "x")
		if _, _, err := Verify([]ed25519.PublicKey{public}, b, token); !errors.Is(err, ErrForeign) {
			t.Errorf("%s is not signed: %v", reflect.TypeFor[Binding]().Field(i).Name, err)
		}
	}
}

// Two keys are known while one replaces the other.
func TestKeysRotate(t *testing.T) {
	oldPrivate, old := newKey(t)
	nextPrivate, next := newKey(t)
	use := func(v *Verifier, key ed25519.PrivateKey) error {
		b := example()
		b.Request = rapid.StringN(32, 32, -1).Example()
		return v.Use(b, Sign(key, b, now), now)
	}
	var v Verifier
	if v.Demands() {
		t.Error("one without keys asks for capabilities")
	}
	for _, c := range []struct {
		keys          []ed25519.PublicKey
		byOld, byNext error
	}{
		{keys: []ed25519.PublicKey{old}, byNext: ErrForeign},
		{keys: []ed25519.PublicKey{old, next}},
		{keys: []ed25519.PublicKey{next}, byOld: ErrForeign},
		{keys: []ed25519.PublicKey{{1, 2, 3}}, byOld: ErrForeign, byNext: ErrForeign}, // of a kind that is not known
	} {
		v.Set(c.keys)
		if !v.Demands() {
			t.Error("one with keys asks for no capabilities")
		}
		if got := use(&v, oldPrivate); !errors.Is(got, c.byOld) {
			t.Errorf("with %d keys, one of the old key: %v", len(c.keys), got)
		}
		if got := use(&v, nextPrivate); !errors.Is(got, c.byNext) {
			t.Errorf("with %d keys, one of the next key: %v", len(c.keys), got)
		}
	}
}

func TestACapabilityHasItsTime(t *testing.T) {
	private, public := newKey(t)
	for _, c := range []struct {
		later time.Duration // than it was signed, by the node's clock
		want  error
	}{
		{0, nil}, {Life + Skew, nil}, {Life + Skew + time.Millisecond, ErrTime}, {-Skew, nil}, {-Skew - time.Millisecond, ErrTime},
	} {
		var v Verifier
		v.Set([]ed25519.PublicKey{public})
		if err := v.Use(example(), Sign(private, example(), now.Add(Life)), now.Add(c.later)); !errors.Is(err, c.want) {
			t.Errorf("%v after it was signed: %v, want %v", c.later, err, c.want)
		}
	}
}

// One is used once, however long it counts; the same request has another when it is bound again.
func TestACapabilityIsUsedOnce(t *testing.T) {
	private, public := newKey(t)
	var v Verifier
	v.Set([]ed25519.PublicKey{public})
	token := Sign(private, example(), now.Add(Life))
	if err := v.Use(example(), token, now); err != nil {
		t.Fatal(err)
	}
	for _, later := range []time.Duration{0, Life, Life + Skew} {
		if err := v.Use(example(), token, now.Add(later)); !errors.Is(err, ErrUsed) {
			t.Errorf("after %v: %v", later, err)
		}
	}
	if err := v.Use(example(), Sign(private, example(), now.Add(Life+time.Millisecond)), now); err != nil {
		t.Errorf("the next one of the request: %v", err)
	}
	after := now.Add(2 * (Life + Skew))
	if err := v.Use(example(), Sign(private, example(), after.Add(Life)), after); err != nil || len(v.used) != 1 || len(v.order) != 1 {
		t.Errorf("%v; %d and %d are remembered of those that have expired", err, len(v.used), len(v.order))
	}
}

// A node that can remember no more takes no more, until some have expired.
func TestUsedCapabilitiesAreBounded(t *testing.T) {
	var v Verifier
	for i := range usedMost {
		u := use{mark{byte(i), byte(i >> 8), byte(i >> 16)}, now}
		if err := v.remember(u, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.remember(use{mark{31: 1}, now}, now); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	if err := v.remember(use{mark{31: 1}, now.Add(Life)}, now.Add(1)); err != nil {
		t.Errorf("one more, after the others have expired: %v", err)
	}
}

// Whatever another node says is no capability, unless the control plane has signed it.
func FuzzVerify(f *testing.F) {
	private, public := newKey(f)
	token := Sign(private, example(), now)
	f.Add(token, "edge-1")
	f.Add(token+"=", "edge-1")
	f.Add(token[:len(token)-1]+"_", "edge-1")
	f.Add(token+"\n", "edge-1")
	f.Add(token, "edge-3")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, said, source string) {
		b := example()
		b.Source = source
		expires, _, err := Verify([]ed25519.PublicKey{public}, b, said)
		if good := said == token && source == "edge-1"; good != (err == nil) || good && !expires.Equal(now) {
			t.Errorf("%q of %q: %v, %v", said, source, expires, err)
		}
	})
}
