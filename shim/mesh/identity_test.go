package mesh

import (
	"strings"
	"testing"
)

func TestNamespaceOf(t *testing.T) {
	for sni, want := range map[string]string{
		"outbound_.80_._.fire.default.svc.cluster.local":      "default",
		"outbound_.8080_.v1_.fire.video.svc.corp.example.com": "video",
		"outbound_.443_._.api.example.com":                    "",
		"fire.default.svc.cluster.local":                      "",
		"":                                                    "",
		"outbound_.80_._.":                                    "",
		"outbound_.80_._.svc.svc":                             "",
	} {
		if got := namespaceOf(sni); got != want {
			t.Errorf("%q: %q, not %q", sni, got, want)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	for _, s := range []string{"spiffe://cluster.local/ns/default/sa/fire", "spiffe://cluster.local/ns//sa/", "https://cluster.local/ns/a/sa/b", "spiffe://a/ns/b/sa/c/d", "spiffe:///ns/b/sa/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := parseIdentity(s)
		if err != nil {
			return
		}
		if again := "spiffe://" + id.trustDomain + "/ns/" + id.namespace + "/sa/" + id.account; again != s {
			t.Errorf("%q was read as %q", s, again)
		}
		if strings.ContainsRune(id.trustDomain+id.namespace+id.account, '/') {
			t.Errorf("%q: %+v", s, id)
		}
	})
}

func FuzzNamespaceOf(f *testing.F) {
	f.Add("outbound_.80_._.fire.default.svc.cluster.local")
	f.Fuzz(func(t *testing.T, s string) {
		if ns := namespaceOf(s); strings.Contains(ns, ".") {
			t.Errorf("%q: %q", s, ns)
		}
	})
}
