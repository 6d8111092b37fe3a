package pods

// Sweep does what happens now and then.
func (s *Set) Sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
}
