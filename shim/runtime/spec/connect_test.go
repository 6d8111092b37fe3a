package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNotify(t *testing.T) {
	const own = `{"names":["connect"],"action":"SCMP_ACT_NOTIFY"}`
	for name, tt := range map[string]struct{ before, after string }{
		"no profile": {`{}`, `{"linux":{"seccomp":{"defaultAction":"SCMP_ACT_ALLOW","listenerPath":"/l",
			"architectures":["SCMP_ARCH_X86_64","SCMP_ARCH_X86","SCMP_ARCH_X32"],"syscalls":[` + own + `]}}}`},
		"containerd's": {
			`{"a":1,"linux":{"b":2,"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":1,"architectures":["SCMP_ARCH_X86_64"],
				"syscalls":[{"names":["close","connect","copy_file_range"],"action":"SCMP_ACT_ALLOW","c":3},{"names":["connect"],"action":"SCMP_ACT_LOG"},
				{"names":["socket"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":40,"op":"SCMP_CMP_NE"}]}]}}}`,
			`{"a":1,"linux":{"b":2,"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":1,"architectures":["SCMP_ARCH_X86_64"],"listenerPath":"/l",
				"syscalls":[{"names":["close","copy_file_range"],"action":"SCMP_ACT_ALLOW","c":3},
				{"names":["socket"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":40,"op":"SCMP_CMP_NE"}]},` + own + `]}}}`},
		"that allows by default": {
			`{"linux":{"seccomp":{"defaultAction":"SCMP_ACT_LOG","syscalls":[{"names":["mount"],"action":"SCMP_ACT_KILL"}]}}}`,
			`{"linux":{"seccomp":{"defaultAction":"SCMP_ACT_LOG","listenerPath":"/l","syscalls":[{"names":["mount"],"action":"SCMP_ACT_KILL"},` + own + `]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Notify([]byte(tt.before), "/l", "amd64")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(value(t, []byte(tt.after)), value(t, got)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	for name, tt := range map[string]struct{ profile, want string }{
		"a listener":         {`{"defaultAction":"SCMP_ACT_ALLOW","listenerPath":"/own"}`, "a listener of its own"},
		"a rule to notify":   {`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["bind"],"action":"SCMP_ACT_NOTIFY"}]}`, "a listener of its own"},
		"notify by default":  {`{"defaultAction":"SCMP_ACT_NOTIFY"}`, "a listener of its own"},
		"connect denied":     {`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["connect"],"action":"SCMP_ACT_ERRNO"}]}`, "a rule for connect"},
		"connect for some":   {`{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["connect"],"action":"SCMP_ACT_ALLOW","args":[{"index":2}]}]}`, "a rule for connect"},
		"denied by default":  {`{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["bind"],"action":"SCMP_ACT_ALLOW"}]}`, "denies connect"},
		"no default":         {`{}`, "denies connect"},
		"rules of numbers":   {`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[1]}`, "seccomp rule 0"},
		"rules in an object": {`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":{}}`, "syscalls"},
		"a string":           {`"unconfined"`, "seccomp"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Notify([]byte(`{"linux":{"seccomp":`+tt.profile+`}}`), "/l", "amd64")
			if err == nil || !strings.Contains(err.Error(), tt.want) || got != nil {
				t.Errorf("%s, %v, want %q", got, err, tt.want)
			}
		})
	}
	if _, err := Notify([]byte(`{}`), "/l", "riscv64"); err == nil {
		t.Error("a profile for an unknown architecture")
	}
}

// FuzzNotify holds for every specification: it is refused, or differs in the rules for connect and in the listener
// only.
func FuzzNotify(f *testing.F) {
	f.Add([]byte(`{"a":1,"linux":{"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["connect","bind"],"action":"SCMP_ACT_ALLOW"}]}}}`))
	f.Add([]byte(`{"linux":null}`))
	f.Add([]byte(`{"linux":{"seccomp":null,"x":1e400}}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		got, err := Notify(config, "/l", "arm64")
		if err != nil {
			return
		}
		before, after := value(t, config).(map[string]any), value(t, got).(map[string]any)
		for _, spec := range []map[string]any{before, after} {
			if linux, is := spec["linux"].(map[string]any); is {
				delete(linux, "seccomp")
			}
			if linux, _ := spec["linux"].(map[string]any); len(linux) == 0 {
				delete(spec, "linux")
			}
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("-before +after\n%s", diff)
		}
	})
}
