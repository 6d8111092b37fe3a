package sourcetest

import (
	"testing"

	"github.com/headstart-mesh/headstart/shim/source"
)

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) Store {
		memory := &Memory{}
		return Store{
			Source: memory,
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
