package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
)

const value = "wJalrXUtnFEMI-a-secret"

func TestLoad(t *testing.T) {
	s, err := secret.Load(sourcetest.Secrets(t, "edge", 0o400, "# of the edge store\n\n username = me\npassword="+value+"=\r\n"), "edge", "username", "password", "token")
	if err != nil {
		t.Fatal(err)
	}
	if s.Get("username") != "me" || s.Get("password") != value+"=" || s.Get("token") != "" || (secret.Secret{}).Get("token") != "" {
		t.Errorf("got %q, %q, %q", s.Get("username"), s.Get("password"), s.Get("token"))
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	for _, in := range []struct {
		name    string
		mode    os.FileMode
		content string
		says    string
	}{
		{"edge", 0o640, "", "mode 0640: others than its owner"},
		{"edge", 0o604, "", "mode 0604: others than its owner"},
		{"none", 0o600, "", "no such file"},
		{"../edge", 0o600, "", "not a name"},
		{"", 0o600, "", "not a name"},
		{"a/b", 0o600, "", "not a name"},
		{"edge", 0o600, "a=i\nb=" + value + "\na=j", "line 3 has no value, or a second one"},
		{"edge", 0o600, "a=\n", "line 1 has no value"},
		{"edge", 0o600, "[default]\na=i", "line 1 is not a, b or c = value"},
		{"edge", 0o600, value, "line 1 is not"},
		{"edge", 0o600, "a=" + strings.Repeat(value, 1<<10), "larger than 16384 bytes"},
	} {
		_, err := secret.Load(sourcetest.Secrets(t, "edge", in.mode, in.content), in.name, "a", "b", "c")
		if err == nil || !strings.Contains(err.Error(), in.says) {
			t.Errorf("%s, %q: %v", in.name, in.says, err)
		}
		if err != nil && strings.Contains(err.Error(), value) {
			t.Errorf("%s, %q: the error tells the secret: %v", in.name, in.says, err)
		}
	}
}

func TestLoadIsNotHeldUpByAPipe(t *testing.T) {
	secrets := sourcetest.Secrets(t, "edge", 0o600, "")
	if err := syscall.Mkfifo(secrets.Name()+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := secret.Load(secrets, "pipe"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}

func TestSecretsShowNothing(t *testing.T) {
	s, err := secret.Load(sourcetest.Secrets(t, "edge", 0o600, "a="+value), "edge", "a")
	if err != nil {
		t.Fatal(err)
	}
	type nested struct{ inner any }
	var out bytes.Buffer
	for _, v := range []any{s, &s, nested{s}, []secret.Secret{s}, struct{ s secret.Secret }{s}} {
		fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d\n", v, v, v, v, v, v, v)
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
	}
	for _, shown := range []string{value, fmt.Sprintf("%x", value)} {
		if strings.Contains(out.String(), shown) {
			t.Errorf("%s", out.String())
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a=i\nb=s\nc=t")
	f.Add("# x\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := secret.Parse(strings.NewReader(text), "a", "b")
		if err != nil {
			return
		}
		for _, key := range []string{"a", "b"} {
			if v := s.Get(key); v != "" && (!strings.Contains(text, v) || strings.ContainsAny(v, "\n")) {
				t.Fatalf("%q gives %q", text, v)
			}
		}
	})
}
