package s3

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/headstart-mesh/headstart/shim/problem"
)

func TestLoadCredentials(t *testing.T) {
	secrets := secretFile(t, 0o400, "# of the edge store\n\n access_key_id = "+testKeyID+"\nsecret_access_key="+testSecret+"=\r\nsession_token = t\n")
	c, err := LoadCredentials(secrets, "edge")
	if err != nil {
		t.Fatal(err)
	}
	if *c.accessKeyID != testKeyID || *c.secretAccessKey != testSecret+"=" || *c.sessionToken != "t" {
		t.Errorf("got %q, %q, %q", *c.accessKeyID, *c.secretAccessKey, *c.sessionToken)
	}
}

func TestLoadCredentialsSaysWhatIsWrong(t *testing.T) {
	const good = "access_key_id=i\nsecret_access_key=" + testSecret
	for _, in := range []struct {
		name    string
		mode    os.FileMode
		content string
		says    string
	}{
		{"edge", 0o640, good, "mode 0640: others than its owner"},
		{"edge", 0o604, good, "mode 0604: others than its owner"},
		{"none", 0o600, good, "no such file"},
		{"../edge", 0o600, good, "not a name"},
		{"", 0o600, good, "not a name"},
		{"a/b", 0o600, good, "not a name"},
		{"edge", 0o600, "", "are required"},
		{"edge", 0o600, "access_key_id=i", "are required"},
		{"edge", 0o600, good + "\naccess_key_id=j", "line 3 has no value, or a second one"},
		{"edge", 0o600, "access_key_id=\n", "line 1 has no value"},
		{"edge", 0o600, "[default]\n" + good, "line 1 is not"},
		{"edge", 0o600, testSecret, "line 1 is not"},
	} {
		_, err := LoadCredentials(secretFile(t, in.mode, in.content), in.name)
		if err == nil || !strings.Contains(err.Error(), in.says) {
			t.Errorf("%+v: %v", in, err)
		}
		if err != nil && strings.Contains(err.Error(), testSecret) {
			t.Errorf("%+v: the error tells the secret: %v", in, err)
		}
	}
}

func TestLoadCredentialsIsNotHeldUpByAPipe(t *testing.T) {
	secrets := secretFile(t, 0o600, "")
	if err := syscall.Mkfifo(secrets.Name()+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadCredentials(secrets, "pipe"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}

func TestCredentialsShowNothing(t *testing.T) {
	c, err := LoadCredentials(secretFile(t, 0o600, "access_key_id="+testKeyID+"\nsecret_access_key="+testSecret), "edge")
	if err != nil {
		t.Fatal(err)
	}
	type nested struct{ inner any }
	var out bytes.Buffer
	for _, v := range []any{c, &c, nested{c}, []Credentials{c}, struct{ c Credentials }{c}} {
		fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d\n", v, v, v, v, v, v, v)
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
	}
	for _, secret := range []string{testSecret, testKeyID, fmt.Sprintf("%x", testSecret)} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s", out.String())
		}
	}
}

// Credentials that cannot be read are the operator's to mend, and no request is made.
func TestFetchWithoutCredentials(t *testing.T) {
	store := &fakeStore{}
	s, end := serve(t, store)
	defer end()
	lost := errors.New("lost")
	cfg := config(nil)
	for _, load := range []func(context.Context) (Credentials, error){
		func(context.Context) (Credentials, error) { return Credentials{}, lost },
		func(context.Context) (Credentials, error) { return Credentials{}, nil },
	} {
		cfg.Credentials = load
		other, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		other.transport.DialContext = s.transport.DialContext
		err = other.Fetch(t.Context(), store.put("k", "content"), (&sink{}).begin)
		p := problem.Of(err)
		if p.Title != "StoreForbidden" || p.Status != http.StatusBadGateway || p.Field != "headstart.dev/store" || strings.Contains(p.Detail, "lost") {
			t.Errorf("got %v", p)
		}
	}
	if len(store.requests) != 0 {
		t.Errorf("requests %q", store.requests)
	}
}

func FuzzParseCredentials(f *testing.F) {
	f.Add("access_key_id=i\nsecret_access_key=s\nsession_token=t")
	f.Add("# x\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCredentials(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, value := range []*string{c.accessKeyID, c.secretAccessKey} {
			if value == nil || *value == "" || !strings.Contains(text, *value) {
				t.Fatalf("%q gives %v", text, value)
			}
		}
	})
}
