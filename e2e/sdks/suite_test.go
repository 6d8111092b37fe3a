package sdks

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestCases(t *testing.T) {
	names := map[string]bool{}
	for _, c := range Cases {
		if names[c.Name] {
			t.Errorf("two cases %q", c.Name)
		}
		names[c.Name] = true
		for client := range c.Cannot {
			if !slices.Contains(Clients, client) {
				t.Errorf("%s: no client %q", c.Name, client)
			}
		}
	}
	for _, list := range []map[string]string{OtherBuckets, NotWithVersitygw} {
		for name := range list {
			if !names[name] {
				t.Errorf("no case %q", name)
			}
		}
	}
}

func TestCompare(t *testing.T) {
	const name = "object of 1 KiB"
	got := func(length float64, entries ...any) Results {
		return Results{name: {Got: []any{M{"GetObject": M{"Size": length}}, M{"ListObjects": M{"Contents": entries}}}}}
	}
	less := Results{name: {Got: []any{M{"GetObject": M{}}, got(1024)[name].Got[1]}}}
	failed := Results{name: {Error: "reset"}}
	for what, test := range map[string]struct {
		store, endpoint Results
		want            []string // each in a difference's text
	}{
		"the same":       {got(1024, "a"), got(1024, "a"), nil},
		"two fields":     {got(1024, "a"), got(1023, "b"), []string{"request 1 GetObject Size", "Contents[0]"}},
		"a field less":   {got(1024), less, []string{"endpoint: <nil>"}},
		"an entry more":  {got(1024, "a"), got(1024, "a", "b"), []string{"Contents[1]"}},
		"a request less": {got(1024), Results{name: {Got: got(1024)[name].Got[:1]}}, []string{"request 2"}},
		"no result":      {got(1024), Results{}, []string{"the store has a result: true, the endpoint: false"}},
		"failed":         {got(1024), failed, []string{"endpoint: reset"}},
		"both failed":    {failed, failed, []string{"store:    reset"}},
	} {
		found := Compare(test.store, test.endpoint)
		if len(found) != min(len(test.want), 1) {
			t.Errorf("%s: %v", what, found)
			continue
		}
		for _, want := range test.want {
			if text := found[0].String(); !strings.HasPrefix(text, name+": ") || !strings.Contains(text, want) {
				t.Errorf("%s: want %q, got %s", what, want, text)
			}
		}
	}
}

func TestMismatch(t *testing.T) {
	answer := M{"status": "200", "Metadata": M{"Camera": "7"}, "Contents": []any{M{"Key": "a", "Size": 1.0}}}
	for what, test := range map[string]struct {
		want  any
		got   M
		wrong bool
	}{
		"nothing wanted":       {nil, M{"error": "500 InternalError"}, false},
		"success":              {ok, answer, false},
		"no success":           {ok, M{"error": "500 InternalError"}, true},
		"field":                {M{"Metadata": M{"camera": "7"}}, answer, false},
		"other field":          {M{"Metadata": M{"camera": "8"}}, answer, true},
		"no such field":        {M{"ETag": "x"}, answer, true},
		"entries":              {M{"Contents": []M{{"Size": 1}}}, answer, false},
		"too few entries":      {M{"Contents": []M{{}, {}}}, answer, true},
		"too many entries":     {M{"Contents": []M{}}, answer, true},
		"error":                {"404 NoSuchKey", M{"error": "404 NoSuchKey"}, false},
		"error of the CLI":     {"404 NoSuchKey", M{"error": "NoSuchKey"}, false},
		"other error":          {"404 NoSuchKey", M{"error": "404 NoSuchBucket"}, true},
		"other status":         {"404 NoSuchKey", M{"error": "400 NoSuchKey"}, true},
		"error without a body": {"404", M{"error": "404 NotFound"}, false},
		"success for an error": {"404", answer, true},
	} {
		if text := mismatch(test.want, test.got); (text != "") != test.wrong {
			t.Errorf("%s: %q", what, text)
		}
	}
}

// command runs a script in place of each driver.
func command(script string) func(context.Context, string, ...string) *exec.Cmd {
	return func(ctx context.Context, _ string, _ ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", script)
	}
}

func TestEachAnswerOfADriverCounts(t *testing.T) {
	for script, want := range map[string]string{
		`while read -r _; do echo '{"status":200,"out":{"ETag":"x"}}'; done`:    "request 1: answer.ETag",
		`while read -r _; do echo '{"status":403,"code":"AccessDenied"}'; done`: "error 403 AccessDenied",
		`while read -r _; do echo '{"fault":"no connection"}'; done`:            "PutObject: no connection",
		`while read -r _; do echo 'this is no JSON'; done`:                      "the driver gave no answer",
		`echo no credentials >&2; exit 1`:                                       "no credentials",
		`echo "$AWS_ENDPOINT_URL_S3 $BUCKET" >&2`:                               "http://192.0.2.1 b",
	} {
		results, err := Run(t.Context(), Go, Env{Endpoint: "http://192.0.2.1", Bucket: "b", Command: command(script),
			Only: []string{"object of 1 KiB"}})
		if err != nil {
			t.Fatal(err)
		}
		if found := Check(results); len(found) != 1 || !strings.Contains(found[0].Text, want) {
			t.Errorf("%s: want %q, got %v", script, want, found)
		}
	}
}

func TestADriverThatHangsIsEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	results, err := Run(ctx, Boto3, Env{Command: func(ctx context.Context, name string, args ...string) *exec.Cmd {
		defer cancel()
		return command("exec sed -n d")(ctx, name, args...) // which reads and says nothing
	}})
	if !errors.Is(err, context.Canceled) || len(results) != 1 {
		t.Errorf("%d results, error %v", len(results), err)
	}
}

func TestThereIsNoSuchCase(t *testing.T) {
	if _, err := Run(t.Context(), Go, Env{Only: []string{"no such case"}}); err == nil {
		t.Error("it ran")
	}
	if _, err := Run(t.Context(), Go, Env{Skip: map[string]string{"no such case": "reason"}}); err == nil {
		t.Error("it was skipped")
	}
}
