package simulator

// heap is a priority queue of values.
type heap[T any] struct {
	items []T
	less  func(a, b T) bool
}

func newHeap[T any](less func(a, b T) bool) *heap[T] { return &heap[T]{less: less} }

func (h *heap[T]) len() int { return len(h.items) }

func (h *heap[T]) push(x T) {
	h.items = append(h.items, x)
	i := len(h.items) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h.less(h.items[i], h.items[up]) {
			break
		}
		h.items[i], h.items[up] = h.items[up], h.items[i]
		i = up
	}
}

func (h *heap[T]) pop() T {
	first := h.items[0]
	last := len(h.items) - 1
	h.items[0] = h.items[last]
	var zero T
	h.items[last] = zero
	h.items = h.items[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if h.less(h.items[c], h.items[least]) {
				least = c
			}
		}
		if least == i {
			return first
		}
		h.items[i], h.items[least] = h.items[least], h.items[i]
		i = least
	}
}
