package sim

// releaseHeap orders transfers by when they may start, then by number.
type releaseHeap struct {
	task []int32
	at   []float64
}

func (h *releaseHeap) reset()             { h.task, h.at = h.task[:0], h.at[:0] }
func (h *releaseHeap) empty() bool        { return len(h.task) == 0 }
func (h *releaseHeap) time(k int) float64 { return h.at[k] }

func (h *releaseHeap) less(a, b int) bool {
	return h.at[a] < h.at[b] || h.at[a] == h.at[b] && h.task[a] < h.task[b]
}

func (h *releaseHeap) swap(a, b int) {
	h.task[a], h.task[b] = h.task[b], h.task[a]
	h.at[a], h.at[b] = h.at[b], h.at[a]
}

func (h *releaseHeap) push(i int32, start []float64) {
	h.task, h.at = append(h.task, i), append(h.at, start[i])
	for k := len(h.task) - 1; k > 0 && h.less(k, (k-1)/2); k = (k - 1) / 2 {
		h.swap(k, (k-1)/2)
	}
}

func (h *releaseHeap) pop() int32 {
	first, last := h.task[0], len(h.task)-1
	h.swap(0, last)
	h.task, h.at = h.task[:last], h.at[:last]
	for k := 0; ; {
		child := 2*k + 1
		if child >= last {
			break
		}
		if child+1 < last && h.less(child+1, child) {
			child++
		}
		if !h.less(child, k) {
			break
		}
		h.swap(child, k)
		k = child
	}
	return first
}
