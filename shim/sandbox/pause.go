package sandbox

import "fmt"

// containerTypes are the annotations by which a runtime tells a pod's infrastructure
// container from the others: containerd's CRI plugin and CRI-O.
var containerTypes = []string{
	"io.kubernetes.cri.container-type",
	"io.kubernetes.cri-o.ContainerType",
}

// Pause tells whether config is of a pod's infrastructure ("pause") container. It runs
// no function, and nothing belongs in it.
func Pause(config []byte) (bool, error) {
	spec, err := parse(config)
	if err != nil {
		return false, err
	}
	var annotations map[string]string
	if err := member(spec, "annotations", &annotations); err != nil {
		return false, fmt.Errorf("looking for the container's type: %w", err)
	}
	for _, name := range containerTypes {
		if annotations[name] == "sandbox" {
			return true, nil
		}
	}
	return false, nil
}
