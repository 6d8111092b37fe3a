package s3proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// What is derived is always the same for one key and purpose, and another for each other one.
func TestDerive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), keySize, keySize)
		keys := rapid.SliceOfNDistinct(key, 1, 3, func(b []byte) string { return string(b) })
		purposes := rapid.SliceOfNDistinct(rapid.String(), 1, 3, rapid.ID[string])
		seen := map[string]bool{}
		many := 0
		all := purposes.Draw(t, "purposes")
		for _, key := range keys.Draw(t, "keys") {
			for _, purpose := range all {
				got := note{Key: key}.derive(purpose)
				again := note{Store: "another", Key: slices.Clone(key)}.derive(purpose)
				if got != again || len(got) != 40 {
					t.Fatalf("%q and %q", got, again)
				}
				seen[got] = true
				many++
			}
		}
		if len(seen) != many {
			t.Fatalf("%d of %d are different", len(seen), many)
		}
	})
	if a, b := newKey(), newKey(); len(a) != keySize || slices.Equal(a, b) {
		t.Errorf("keys %x and %x", a, b)
	}
}

// An id says by itself until when it is good, and nothing but digits.
func TestSecret(t *testing.T) {
	n, now := note{Key: newKey()}, time.Unix(2_000_000_000, 0)
	for id, want := range map[string]struct{ known, expired bool }{
		"HEADSTART2000000001":  {true, false},
		"HEADSTART2000000000":  {true, true},
		"HEADSTART1999999999":  {true, true},
		"HEADSTART0000000000":  {true, true},
		"HEADSTART9999999999":  {true, false},
		"":                     {},
		"HEADSTART":            {},
		"HEADSTART200000001":   {},
		"HEADSTART20000000011": {},
		"headstart2000000001":  {},
		"HEADSTART20000000 1":  {},
		"HEADSTART+200000001":  {},
		"HEADSTART-200000001":  {},
		"HEADSTART2_00000001":  {},
		"HEADSTART0x20000000":  {},
		"HEADSTART２２２1":        {},
		"2000000001":           {},
		"AKIAIOSFODNN7EXAMPLE": {},
	} {
		secret, token, known, expired := n.secret(id, now)
		if known != want.known || expired != want.expired || (secret == "") != !known || (token == "") != !known {
			t.Errorf("%q: known %v, expired %v, %q, %q", id, known, expired, secret, token)
		}
		if known && (secret == token || secret == n.derive("authorization")) {
			t.Errorf("%q: the secret is %q, the token %q", id, secret, token)
		}
	}
}

// The program finds endpoint, credentials and region, and no more.
func TestEnv(t *testing.T) {
	n := note{Key: newKey()}
	want := map[string]string{
		"AWS_ENDPOINT_URL_S3":                "http://{address}",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://{address}/_headstart/credentials",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN":  n.derive("authorization"),
		"AWS_REGION":                         "r",
		"AWS_DEFAULT_REGION":                 "r",
	}
	if d := cmp.Diff(want, n.env("r")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Who knows the token gets credentials, which are good for a while, at this sandbox alone.
func TestCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		sb, other := n.box("a"), n.box("b")
		own := sb.derive("authorization")
		for _, token := range []string{"", "x", other.derive("authorization"), own + " ", "Bearer " + own, own[1:]} {
			r := httptest.NewRequest(http.MethodGet, credentialsPath, nil)
			r.Header.Set("Authorization", token)
			res, body, _ := n.do(sb, r)
			if res.StatusCode != http.StatusUnauthorized || strings.Contains(body, "HEADSTART") {
				t.Errorf("%q: %d %s", token, res.StatusCode, body)
			}
		}
		if !n.starts("a") {
			t.Error("to ask for credentials is to have started")
		}
		r := httptest.NewRequest(http.MethodGet, credentialsPath, nil)
		r.Header.Set("Authorization", sb.derive("authorization"))
		res, body, _ := n.do(sb, r)
		var got struct{ AccessKeyId, SecretAccessKey, Token, Expiration string }
		if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%d %s, %v", res.StatusCode, body, err)
		}
		end, err := time.Parse(time.RFC3339, got.Expiration)
		if left := time.Until(end); err != nil || left > lifetime || left < lifetime-time.Second {
			t.Errorf("they end at %s, %v", got.Expiration, err)
		}
		secret, token, known, expired := sb.secret(got.AccessKeyId, time.Now())
		id := fmt.Sprintf("HEADSTART%010d", end.Unix())
		if !known || expired || secret != got.SecretAccessKey || token != got.Token || got.AccessKeyId != id {
			t.Errorf("they are %+v", got)
		}
		if res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("the header is %v", res.Header)
		}
		for _, after := range []struct {
			time time.Duration
			code string
		}{{lifetime - time.Minute, ""}, {time.Minute, "ExpiredToken"}} {
			time.Sleep(after.time)
			r := incoming("GET", "/", "", nil)
			sb.signAs(t, r, got.AccessKeyId)
			if _, body, _ := n.do(sb, r); codeOf(body) != after.code {
				t.Errorf("after %v: %s", after.time, body)
			}
		}
		if n.starts("a") {
			t.Error("a sandbox that has sent a request starts")
		}
	})
}

func TestRequestID(t *testing.T) {
	a, b := requestID(), requestID()
	if len(a) != 16 || a == b || strings.Trim(a, "0123456789ABCDEF") != "" {
		t.Errorf("%s and %s", a, b)
	}
}
