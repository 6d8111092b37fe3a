package fair

import "testing"

// A namespace that has given all back takes no room, whichever way it gave it.
func TestNothingIsLeftOfANamespaceThatHasNothing(t *testing.T) {
	for name, back := range map[string]func(*Share){
		"Return": func(s *Share) { s.Return("shop/cart", 2) },
		"Add":    func(s *Share) { s.Add("shop/cart", -2) },
	} {
		s := NewShare(10)
		s.Add("shop/cart", 2)
		back(s)
		if len(s.by) > 0 || s.used != 0 {
			t.Errorf("%s: %v, %d", name, s.by, s.used)
		}
	}
}
