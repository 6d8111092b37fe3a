package eviction

// Namespaces has a policy for each namespace, so that none has the others' objects evicted by asking for many of its
// own. Its user locks it.
type Namespaces[K comparable] struct {
	policies map[string]*Policy[K] // those that hold something
}

// ForNamespaces returns policies of namespaces that hold nothing yet.
func ForNamespaces[K comparable]() *Namespaces[K] {
	return &Namespaces[K]{policies: map[string]*Policy[K]{}}
}

// Of returns a namespace's policy. While the namespace has more than its quota of Bytes, its own policy says what
// goes. The policy of a namespace that holds nothing may be another one after the next Evict.
func (n *Namespaces[K]) Of(namespace string) *Policy[K] {
	p := n.policies[namespace]
	if p == nil {
		p = New[K]()
		n.policies[namespace] = p
	}
	return p
}

// Evict returns what goes first of all: an object of the namespace with the most bytes to give, of two the one whose
// name is first. So a namespace keeps what it has while that is less than an equal part.
func (n *Namespaces[K]) Evict() (namespace string, key K, size int64, ok bool) {
	var from *Policy[K]
	for name, p := range n.policies {
		switch {
		case p.Len() == 0:
			delete(n.policies, name)
		case p.candidates() == 0: // all are in use
		case from == nil || p.Bytes() > from.Bytes() || p.Bytes() == from.Bytes() && name < namespace:
			namespace, from = name, p
		}
	}
	if from == nil {
		return "", key, 0, false
	}
	key, size, ok = from.Evict()
	return namespace, key, size, ok
}
