package istio

import "reflect"

// contains reports whether have is as want says, as far as want says anything. Fields
// that others have added to an object stay theirs; a list is one field.
func contains(have, want any) bool {
	w, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(have, want)
	}
	h, ok := have.(map[string]any)
	if !ok {
		return len(w) == 0 && have == nil
	}
	for k, v := range w {
		if !contains(h[k], v) {
			return false
		}
	}
	return true
}
