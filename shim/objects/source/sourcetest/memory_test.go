package sourcetest

import (
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) Store {
		memory := &Memory{Allowed: func(ref source.Reference) bool { return ref.Scheme == source.SchemeS3 && ref.Bucket == "inputs" }}
		return Store{
			Source: memory,
			Scheme: source.SchemeS3,
			Bucket: "inputs",
			Part:   memoryPart,
			Put: func(ref source.Reference, contentType string, content []byte) error {
				memory.Put(ref, contentType, content)
				return nil
			},
			Delete: func(ref source.Reference) error { memory.Delete(ref); return nil },
			Close:  func() {},
		}
	})
}
