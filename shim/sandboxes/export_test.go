package sandboxes

// Sweep does what happens now and then.
func (k *Kubelet) Sweep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweep()
}

// Unasked is closed when no pod is probed any more.
func (k *Kubelet) Unasked() <-chan struct{} {
	ended := make(chan struct{})
	go func() { k.wg.Wait(); close(ended) }()
	return ended
}
