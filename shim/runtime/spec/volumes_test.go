package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	version  = "3b4c0000000000000000000000000000000000000000000000000000000000ff"
	tree     = "/s/volumes/media/" + version + "/files"
	emptyDir = "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~empty-dir/"
)

// withVolumes is a pod of the namespace media with volumes.
var withVolumes = Sandbox{Directory: "a", Roots: []string{"/s"}, Pins: "/bundle/headstart", UID: "u-1",
	Volumes: &Volumes{Namespace: "media", Names: []string{"models", "input"}}}

func mounted(source, name string) *nodeapi.DescribeResponse {
	return &nodeapi.DescribeResponse{Mounts: []*nodeapi.Mount{{Source: source, Destination: "/headstart/volumes/" + name, ReadOnly: true}}}
}

// bindOf is the mount of the volume models.
func bindOf(destination string) string {
	return `{"destination":"` + destination + `","type":"bind","source":"/bundle/headstart/volumes.models","options":["bind","ro","nosuid","nodev","noexec"]}`
}

// mountOf is one as containerd writes it.
func mountOf(source, destination string) string {
	return `{"destination":"` + destination + `","type":"bind","source":"` + source + `","options":["rbind","rprivate","rw"],"uidMappings":[]}`
}

func TestAVolumeTakesThePlaceOfItsEmptyDir(t *testing.T) {
	proc := `{"destination":"/proc","type":"proc","source":"proc"}`
	for name, tt := range map[string]struct{ before, after string }{
		"none":                           {proc, proc},
		"one":                            {mountOf(emptyDir+"models", "/models") + "," + proc, bindOf("/models") + "," + proc},
		"at two places":                  {mountOf(emptyDir+"models", "/a") + "," + mountOf(emptyDir+"models", "/b/"), bindOf("/a") + "," + bindOf("/b/")},
		"beside another":                 {mountOf(emptyDir+"models2", "/models/") + "," + mountOf(emptyDir+"models", "/m"), mountOf(emptyDir+"models2", "/models/") + "," + bindOf("/m")},
		"of another kubelet's directory": {mountOf("/var/snap/microk8s/common"+emptyDir+"models", "/models"), bindOf("/models")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Apply([]byte(`{"mounts":[`+tt.before+`]}`), withVolumes, mounted(tree, "models"))
			if err != nil {
				t.Fatal(err)
			}
			want := `{"mounts":[` + tt.after + "," + bindOf("/headstart/volumes/models") + `]}`
			if d := cmp.Diff(value(t, []byte(want)), value(t, got)); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			again, err := Apply(got, withVolumes, mounted(tree, "models"))
			if d := cmp.Diff(string(got), string(again)); d != "" || err != nil {
				t.Errorf("again: %v, %s", err, d)
			}
		})
	}
}

// What is not the pod's own emptyDir of the volume's name stays as it is, however much it looks like it.
func TestAttackOfTheAnnotationAuthorOnOtherMounts(t *testing.T) {
	for name, source := range map[string]string{
		"another pod's":       strings.Replace(emptyDir, "u-1", "u-2", 1) + "models",
		"another name":        emptyDir + "data",
		"a longer name":       emptyDir + "models2",
		"the end of a name":   emptyDir + "my-models",
		"within it":           emptyDir + "models/sub",
		"by a subPath":        "/var/lib/kubelet/pods/u-1/volume-subpaths/models/c/0",
		"a secret":            "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~secret/models",
		"a projected token":   "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~projected/models",
		"a claim":             "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~csi/models/mount",
		"of the host":         "/models",
		"by another way":      "/var/lib/kubelet/pods/u-1/volumes/x/../kubernetes.io~empty-dir/models",
		"with two slashes":    "/var/lib/kubelet//pods/u-1/volumes/kubernetes.io~empty-dir/models",
		"with a slash behind": emptyDir + "models/",
		"relative":            "var/lib/kubelet/pods/u-1/volumes/kubernetes.io~empty-dir/models",
		"of no kubelet":       "/pods/u-1/volumes/kubernetes.io~empty-dir/models",
		"not named":           emptyDir + "scratch",
	} {
		t.Run(name, func(t *testing.T) {
			before := mountOf(source, "/models")
			got, err := Apply([]byte(`{"mounts":[`+before+`]}`), withVolumes, mounted(tree, "models"))
			if err != nil {
				t.Fatal(err)
			}
			want := `{"mounts":[` + before + "," + bindOf("/headstart/volumes/models") + `]}`
			if d := cmp.Diff(value(t, []byte(want)), value(t, got)); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
	outside := withVolumes
	outside.UID = ""
	before := mountOf("/var/lib/kubelet/pods//volumes/kubernetes.io~empty-dir/models", "/models")
	got, err := Apply([]byte(`{"mounts":[`+before+`]}`), outside, mounted(tree, "models"))
	if err != nil || !strings.Contains(string(got), "kubernetes.io~empty-dir") {
		t.Errorf("a container of no pod: %v, %s", err, got)
	}
}

// A compromised daemon mounts nothing at a volume's place but a volume of the pod's namespace, and none that the pod
// does not name.
func TestAttackOfTheDaemonByVolumes(t *testing.T) {
	for name, tt := range map[string]struct{ source, volume string }{
		"another namespace's":     {strings.Replace(tree, "media", "bank", 1), "models"},
		"all of a namespace":      {"/s/volumes/media", "models"},
		"all of a version":        {"/s/volumes/media/" + version, "models"},
		"within a version":        {tree + "/7b", "models"},
		"an input of another":     {"/s/b", "models"},
		"an input of its own":     {"/s/a", "models"},
		"no digest":               {"/s/volumes/media/latest/files", "models"},
		"outside of the roots":    {"/etc/volumes/media/" + version + "/files", "models"},
		"by another way":          {"/s/volumes/bank/../media/" + version + "/files", "models"},
		"a volume without a name": {tree, "data"},
		"a volume in a volume":    {tree, "models/a"},
		"above":                   {tree, "../input"},
		"all volumes":             {tree, ""},
	} {
		if got, err := Apply([]byte(`{"mounts":[]}`), withVolumes, mounted(tt.source, tt.volume)); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
	writable := mounted(tree, "models")
	writable.Mounts[0].ReadOnly = false
	if got, err := Apply([]byte(`{}`), withVolumes, writable); err == nil {
		t.Errorf("writable: %s", got)
	}
	without := withVolumes
	without.Volumes = nil
	if got, err := Apply([]byte(`{}`), without, mounted(tree, "models")); err == nil {
		t.Errorf("a pod without volumes: %s", got)
	}
	for _, destination := range []string{"/headstart/input", "/headstart/volumes"} {
		d := mounted(tree, "models")
		d.Mounts[0].Destination = destination
		if got, err := Apply([]byte(`{}`), withVolumes, d); err == nil {
			t.Errorf("a volume at %s: %s", destination, got)
		}
	}
	own := &nodeapi.DescribeResponse{Mounts: []*nodeapi.Mount{{Source: "/s/a", Destination: "/headstart/volumes", ReadOnly: true}}}
	if got, err := Apply([]byte(`{}`), withVolumes, own); err == nil {
		t.Errorf("something else in the place of all volumes: %s", got)
	}
}

// Nothing can be mounted in a volume: runc would fail, and say nothing that helps.
func TestAMountWithinAVolumeIsRefused(t *testing.T) {
	config := `{"mounts":[` + mountOf(emptyDir+"models", "/models") + "," + mountOf("/x", "/models/config") + `]}`
	_, err := Apply([]byte(config), withVolumes, mounted(tree, "models"))
	if err == nil || !strings.Contains(err.Error(), `volume "models": the specification has a mount within the emptyDir`) {
		t.Error(err)
	}
	if _, err := Apply([]byte(`{"mounts":[`+mountOf("/x", "/headstart/volumes/models")+`]}`), withVolumes, mounted(tree, "models")); err == nil {
		t.Error("a mount of the owner's is replaced")
	}
}

// A volume and a directory of the sandbox's own may have one name.
func TestPinsDiffer(t *testing.T) {
	input := withVolumes.Pin(&nodeapi.Mount{Destination: "/headstart/input"})
	if volume := withVolumes.Pin(&nodeapi.Mount{Destination: "/headstart/volumes/input"}); input == volume {
		t.Errorf("both are at %s", volume)
	}
}
