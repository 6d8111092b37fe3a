package sandboxes_test

import "testing"

// Who calls is known by the sandbox, if a function has it: a job is none, and of others nobody has said.
func TestASandboxIsAFunctions(t *testing.T) {
	r := newRig(t)
	r.start("fire-1", r.serving()...)
	r.ready("fire-1")
	jobs := newJobRig(t, nil)
	jobs.run("job-1", nil, "exit", "0", "1s")
	pods := newPodRig(t)
	s := podStarting("")
	pods.has(s)
	for name, c := range map[string]struct{ got, want string }{
		"an instance":          {r.set.Function("fire-1"), function},
		"a job":                {jobs.set.Function("job-1"), ""},
		"a pod":                {pods.Function(s.GetId()), s.GetFunction()},
		"a pod of no function": {pods.Function("default_other_1"), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s is %q's, want %q", name, c.got, c.want)
		}
	}
	jobs.over(t)
}
