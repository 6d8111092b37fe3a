package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

var withQueues = append(stores.Stores{{Name: "queues", Kind: stores.KindRedis, Endpoint: "redis:6379", Buckets: []string{"jobs", "Frames_1"}}}, allowed...)

func TestParseTrigger(t *testing.T) {
	base := policy.Policy{Store: "queues", InputLimit: 1 << 30, ScaleToZero: 30 * time.Second, ReadyTimeout: time.Minute, Routing: policy.RoutingBalanced}
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		want        func(*policy.Policy)
	}{
		{"by the function's store", map[string]string{policy.KeyTrigger: "redis://jobs/frames", policy.KeyStore: "queues"},
			func(p *policy.Policy) { p.Trigger, p.TriggerStore, p.TriggerTries = "redis://jobs/frames", "queues", 5 }},
		{"by a store of its own", map[string]string{policy.KeyTrigger: "redis://Frames_1/a:b/c.d-e", policy.KeyTriggerStore: "queues", policy.KeyTriggerTries: "100", policy.KeyInput: "s3://videos/{header.ce-subject}"},
			func(p *policy.Policy) {
				p.Store, p.Input = "default", "s3://videos/{header.ce-subject}"
				p.Trigger, p.TriggerStore, p.TriggerTries = "redis://Frames_1/a:b/c.d-e", "queues", 100
			}},
		{"a store for none", map[string]string{policy.KeyTriggerStore: "elsewhere", policy.KeyTriggerTries: "7", policy.KeyStore: "queues"}, func(*policy.Policy) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := policy.Parse(tt.annotations, withQueues)
			if err != nil {
				t.Fatal(err)
			}
			want := base
			tt.want(&want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestParseRefusesTriggers(t *testing.T) {
	const stream = "redis://jobs/frames"
	for _, tt := range []struct {
		annotations map[string]string
		want        string
	}{
		{map[string]string{policy.KeyTrigger: ""}, `headstart.dev/trigger: is not a stream; write it like redis://jobs/frames`},
		{map[string]string{policy.KeyTrigger: "s3://jobs/frames"}, `headstart.dev/trigger: "s3://jobs/frames" is not a stream; write it like redis://jobs/frames`},
		{map[string]string{policy.KeyTrigger: "redis://me:secret@jobs/frames"}, `headstart.dev/trigger: "redis://***@jobs/frames" is not a stream; write it like redis://jobs/frames`},
		{map[string]string{policy.KeyTrigger: "redis://{header.x-keyspace}/frames"}, `headstart.dev/trigger: "redis://{header.x-keyspace}/frames" is not a stream; write it like redis://jobs/frames`},
		{map[string]string{policy.KeyTrigger: "redis://jobs/"}, `headstart.dev/trigger: "redis://jobs/" is not a stream; write it like redis://jobs/frames`},
		{map[string]string{policy.KeyTrigger: "redis://jobs/" + strings.Repeat("a", 257)}, `headstart.dev/trigger: "redis://jobs/` + strings.Repeat("a", 64-len("redis://jobs/")) + `…" is not a stream; write it like redis://jobs/frames`},
		{map[string]string{policy.KeyTrigger: "redis://jobs/a\n"}, `headstart.dev/trigger: "redis://jobs/a\n" is not a stream; write it like redis://jobs/frames`},
		{map[string]string{policy.KeyTrigger: stream}, `headstart.dev/store: "default" has no streams; name a store of the kind redis by headstart.dev/trigger-store`},
		{map[string]string{policy.KeyTrigger: stream, policy.KeyTriggerStore: "nowhere"}, `headstart.dev/trigger-store: "nowhere" is not among the operator's stores; use one of queues, default, archive, jobs, web, private`},
		{map[string]string{policy.KeyTrigger: stream, policy.KeyTriggerStore: "Queues"}, `headstart.dev/trigger-store: "Queues" is not the name of a store; use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit`},
		{
			map[string]string{policy.KeyTrigger: "redis://private/frames", policy.KeyTriggerStore: "queues"},
			`headstart.dev/trigger: "redis://private/frames" is in a bucket that store queues does not allow; use one of jobs, Frames_1, or ask the operator to allow it`,
		},
		{map[string]string{policy.KeyTriggerTries: "0"}, `headstart.dev/trigger-tries: "0" is not a number from 1 to 100; write it like 10`},
		{map[string]string{policy.KeyTriggerTries: "101"}, `headstart.dev/trigger-tries: "101" is not a number from 1 to 100; write it like 10`},
		{map[string]string{policy.KeyTriggerTries: "05"}, `headstart.dev/trigger-tries: "05" is not a number from 1 to 100; write it like 10`},
		{map[string]string{policy.KeyTriggerTries: "99999999999999999999"}, `headstart.dev/trigger-tries: "99999999999999999999" is not a number from 1 to 100; write it like 10`},
	} {
		t.Run(tt.want, func(t *testing.T) {
			got, err := policy.Parse(tt.annotations, withQueues)
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
