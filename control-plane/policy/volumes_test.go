package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

func TestVolumes(t *testing.T) {
	given := map[string]string{policy.KeyVolumes: "models=s3://videos/llama/,all=s3://videos/"}
	defaults := policy.Volumes{Store: "default", Wait: time.Minute, List: []reference.Volume{
		{Name: "models", Prefix: reference.Reference{Scheme: "s3", Bucket: "videos", Key: "llama/"}},
		{Name: "all", Prefix: reference.Reference{Scheme: "s3", Bucket: "videos"}},
	}}
	got, err := policy.ParseTemplate(given, jobStores, nil)
	if d := cmp.Diff(defaults, got.Volumes); d != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, d)
	}
	given[policy.KeyVolumesWait], given[policy.KeyVolumesLate] = "0s", "start"
	got, err = policy.ParseJob(given, jobStores, nil)
	m := got.Volumes.Message("id", "media/pod")
	if err != nil || m.GetWait().AsDuration() != 0 || !m.GetStartLate() || m.GetVolumes()[0].GetPrefix() != "s3://videos/llama/" {
		t.Errorf("%v, %v", m, err)
	}
	got, err = policy.ParseJob(map[string]string{policy.KeyInput: "s3://videos/a", policy.KeyVolumesWait: "5m"}, jobStores, nil)
	if err != nil || got.Volumes.Message("id", "media/pod") != nil {
		t.Errorf("without volumes: %+v, %v", got, err)
	}
}

func TestMistakesWithVolumes(t *testing.T) {
	const like = "; write it like models=s3://models/llama/"
	for value, want := range map[string]string{
		"models=s3://videos/llama": `"models=s3://videos/llama" is not a list of volumes: <name>=s3://<bucket>/<prefix>/, separated by commas` + like,
		"models=redis://videos/a/": `"models=redis://videos/a/" names a store that has no lists of objects: volumes are read from s3:// alone` + like,
		"a=s3://videos/a/../":      `"a=s3://videos/a/../" has a prefix that has the path segment ".."` + like,
		"a=s3://vi..deos/":         `"a=s3://vi..deos/" has a bucket that must not hold two dots in a row` + like,
		"a=s3://private/":          `"a=s3://private/" reads a bucket that store default does not allow; use one of videos, or ask the operator to allow it`,
	} {
		_, err := policy.ParseTemplate(map[string]string{policy.KeyVolumes: value}, jobStores, nil)
		if err == nil || err.Error() != "headstart.dev/volumes: "+want {
			t.Errorf("%s:\n got %v\nwant %s", value, err, want)
		}
	}
	const want = "headstart.dev/volumes: is of pods; move it to spec.template.metadata.annotations"
	if _, err := policy.Parse(map[string]string{policy.KeyVolumes: "a=s3://videos/"}, jobStores); err == nil || err.Error() != want {
		t.Error(err)
	}
}
