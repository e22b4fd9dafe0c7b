package sim

// event is something that will happen to a node: kind says what. The order of two events at one moment is that in which they were
// scheduled.
type event struct {
	kind eventKind
	node int32
	from int32  // who sent a message
	boot int32  // of the node that it is for; 0: of any
	data []byte // a message
	do   func() // what is rare
}

type eventKind uint8

const (
	call eventKind = iota
	tick
	audit
	flush
	hasten
	wake
	packet
	stream
)

// queue is the events to come. What is moved about in its heap is small; events wait in slots that are used again.
type queue struct {
	heap  []entry
	slots []event
	free  []int32
	count uint64
}

type entry struct {
	at     int64
	number uint64
	slot   int32
}

func (e entry) before(f entry) bool { return e.at < f.at || e.at == f.at && e.number < f.number }

func (q *queue) push(at int64, e event) {
	var slot int32
	if n := len(q.free); n > 0 {
		slot = q.free[n-1]
		q.free = q.free[:n-1]
		q.slots[slot] = e
	} else {
		slot = int32(len(q.slots))
		q.slots = append(q.slots, e)
	}
	q.count++
	x := entry{at, q.count, slot}
	q.heap = append(q.heap, x)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !x.before(q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = x
}

// next is when the next event happens; ok is false if there is none.
func (q *queue) next() (at int64, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

func (q *queue) pop() event {
	slot := q.heap[0].slot
	last := len(q.heap) - 1
	x := q.heap[last]
	q.heap = q.heap[:last]
	for i := 0; i < last; {
		least := 4*i + 1
		if least >= last {
			q.heap[i] = x
			break
		}
		for c := least + 1; c < min(4*i+5, last); c++ {
			if q.heap[c].before(q.heap[least]) {
				least = c
			}
		}
		if !q.heap[least].before(x) {
			q.heap[i] = x
			break
		}
		q.heap[i] = q.heap[least]
		i = least
	}
	e := q.slots[slot]
	q.slots[slot] = event{}
	q.free = append(q.free, slot)
	return e
}
