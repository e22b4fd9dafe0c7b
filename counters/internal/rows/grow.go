package rows

import (
	"math"
	"sync/atomic"
)

// A shard begins small, and doubles its homes where it is, in address space that is reserved for it. It does so in
// steps, from the end of the shard to the beginning, and in between
//
//	hashes below split have their homes among the first half of the homes, as before
//	all others have them among all homes: twice as far, or one place more
//
// So homes still ascend with hashes, and there is one home for a hash. A step takes out all lines between two free
// ones, lowers split, and inserts them again. The lines before and after them do not matter: no search for those
// passes a free line. At split 0 the shard has doubled.

// Grow has the shard grow, if it has to: a step for every two lines that were inserted meanwhile. Lines move: no
// pointer to a line outlives it. It takes some microseconds, and is to be called before an insertion, not by a scan.
func (s *Shard) Grow() {
	for s.MustGrow() && s.grow() {
	}
}

// MustGrow reports whether Grow has something to do.
func (s *Shard) MustGrow() bool { return s.used >= s.growAt }

// linesPerStep is how many lines may be inserted in a step of growth: 1/32 of a shard until it has doubled.
const linesPerStep = 2

// grow does a step. It returns false if there is none to do, or no room for it.
func (s *Shard) grow() bool {
	if s.split == 0 {
		if int(s.homes) == s.sizes.most {
			return false
		}
		s.setHomes(2 * s.homes)
		s.setSplit(1 << 32)
	}
	if !s.lowerSplit() {
		return false
	}
	s.limit, s.most = s.last, s.last // nothing goes to make room meanwhile
	if s.growAt = min(s.growAt+linesPerStep, s.most); s.split == 0 {
		s.setLimits()
	}
	return true
}

// lowerSplit doubles the homes of the next lines. It leaves all as it is if there might be no room for one.
func (s *Shard) lowerSplit() bool {
	home := int(s.split * s.homes >> 33)
	before, after := home-s.part-1, home
	for before >= 0 && !s.at(before).free() {
		before--
	}
	for !s.at(after).free() {
		after++
	}
	before = max(before, -1)
	if !s.hasRoom(after - before) {
		return false
	}
	type moved struct {
		Line
		marked bool
	}
	var room [4 * growPart]moved // hardly ever too few
	lines := room[:0]
	for i := before + 1; i < after; i++ {
		if !s.at(i).free() {
			lines = append(lines, moved{*s.at(i), s.marked(i)})
			s.put(i, &Line{}, false)
		}
	}
	s.setSplit((uint64(before+1)<<33 + s.homes - 1) / s.homes)
	for k := range lines {
		i := s.home(s.hashOf(&lines[k].Line))
		for !s.at(i).free() {
			i++
		}
		s.put(i, &lines[k].Line, lines[k].marked)
	}
	return true
}

// hasRoom reports whether so many lines certainly have room after their new homes. In the first step they have: there
// are more places after the new home of each than there were after the old one, and no more lines. In the others they
// have if as many places are free that are after all of these homes, and they practically always are.
func (s *Shard) hasRoom(n int) bool {
	if s.split == 1<<32 {
		return true
	}
	for i := int(s.split * s.homes >> 32); i < s.last && n > 0; i++ {
		if s.at(i).free() {
			n--
		}
	}
	return n == 0
}

// setHomes sets the number of homes. Touch reads it without the lock, and split: whatever it sees of both, it reads a
// line of the shard.
func (s *Shard) setHomes(n uint64) {
	atomic.StoreUint64(&s.homes, n)
	s.last = int(n) + s.overflow - 1
	for len(s.dirty) <= s.last/64 {
		s.dirty = append(s.dirty, make([]uint64, s.last/64+1-len(s.dirty))...)
	}
}

func (s *Shard) setSplit(h uint64) { atomic.StoreUint64(&s.split, h) }

// setLimits sets the limits of a shard that does not grow now. One that can grow takes lines as long as there is a
// place for them: they may be inserted where it must not grow, as lines would move.
func (s *Shard) setLimits() {
	n := int(s.homes)
	s.limit = max(1, n*loadNum/loadDen)
	if s.growAt, s.most = s.limit, s.last; n == s.sizes.most {
		s.growAt, s.most = math.MaxInt, max(1, n*mostNum/loadDen)
	}
}

// UseHugePages puts what is used of the memory into huge pages: each of which shards use at least half. It is to be
// called now and then, by one goroutine. It locks one shard at a time, and none while the kernel works.
func (t *Store) UseHugePages() {
	if t.huge == nil {
		t.huge = make([]bool, len(t.shards)*t.eachBytes()/hugePage)
	}
	used := make([]int, len(t.huge)+1)
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		from, left := i*t.eachBytes(), (s.last+1)*lineBytes
		s.Unlock()
		for left > 0 {
			n := min(left, hugePage-from%hugePage)
			used[min(from/hugePage, len(t.huge))] += n
			from, left = from+n, left-n
		}
	}
	for i := range t.huge {
		if !t.huge[i] && used[i] >= hugePage/2 {
			t.huge[i] = true
			t.shards[0].memory.useHugePages(i)
		}
	}
}

// eachBytes is the size of a shard.
func (t *Store) eachBytes() int {
	return (t.shards[0].sizes.most + t.shards[0].overflow) * lineBytes
}
