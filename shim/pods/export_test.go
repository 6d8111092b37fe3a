package pods

// Sweep does what happens now and then.
func (s *Set) Sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
}

// Unasked is closed when no pod is probed any more.
func (s *Set) Unasked() <-chan struct{} {
	ended := make(chan struct{})
	go func() { s.probes.Wait(); close(ended) }()
	return ended
}
