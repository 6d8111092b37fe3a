package admission

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// YAML returns the policies as documents for kubectl or a chart.
func YAML(policies []Policy) ([]byte, error) {
	var documents [][]byte
	for _, p := range policies {
		for _, object := range []any{&p.Policy, &p.Binding} {
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
			if err != nil {
				return nil, fmt.Errorf("converting the admission policy: %w", err)
			}
			delete(fields, "status") // which only a server writes
			text, err := yaml.Marshal(fields)
			if err != nil {
				return nil, fmt.Errorf("writing the admission policy: %w", err)
			}
			documents = append(documents, text)
		}
	}
	return bytes.Join(documents, []byte("---\n")), nil
}
