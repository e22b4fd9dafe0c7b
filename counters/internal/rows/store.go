package rows

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Numbers is how many meters have a number, with 0, which is none.
const Numbers = 1 << meterBits

// Meters are the ids of meters by number. The id of a number must not change while a line has the number. No id is 0.
type Meters [Numbers]uint64

// Config configures a Store.
type Config struct {
	Bytes  int    // of memory, for all lines, at most: a store takes it as lines come
	Shards int    // a power of two
	Seed   uint64 // of hashes; secret if others choose keys
	Meters *Meters
}

// Store is a fixed number of shards, each an array of lines with a lock.
type Store struct {
	shards []Shard
	huge   []bool // which huge pages are used
	shift  uint   // of a hash, to the number of its shard
	seed   uint64
}

// Shard is a part of a store. All its methods but Touch need its lock. A line may move when another one of its shard is
// removed: no pointer to a line outlives that.
type Shard struct {
	sync.Mutex
	lines  unsafe.Pointer // the first one
	homes  uint64         // where a search may begin: the first so many lines; see grow.go
	split  uint64         // the least hash whose home is among all homes
	dirty  []uint64       // a bit for each line
	meters *Meters
	seed   uint64
	used   int
	limit  int // of used, for heads
	most   int // of used
	growAt int // of used, from which Grow has something to do
	last   int // the last line, which stays free: every search ends
	hand   int // where Victim goes on
	*common
} // two lines in all

var _ [0]struct{} = [unsafe.Sizeof(Shard{}) - 2*lineBytes]struct{}{}

// common is what the shards of a store have in common.
type common struct {
	memory *region
	sizes
}

// sizes are numbers of lines.
type sizes struct {
	least    int // the homes of a shard at first
	most     int // and at last: a power of two as many
	overflow int // lines after the last home, with the last one
	part     int // places that a step of growth moves
}

const (
	// 13 of 16 homes are to be used: with more, searches get long, with less, a key takes more memory. Two more are for
	// lines of the heads that are there, so that a head gets its lines without a search for what may go.
	loadNum, mostNum, loadDen = 13, 15, 16
	// The lines after the last home take what does not fit before it.
	overflow = 256
	// A shard begins with a page of memory or two.
	leastHomes = 64
	growPart   = 64
)

// New returns an empty store.
func New(cfg Config) *Store {
	n := cfg.Bytes / cfg.Shards / lineBytes
	extra := min(overflow, n/8) + 1
	most := max(1, n-extra)
	least := most
	for least >= 2*leastHomes {
		least /= 2
	}
	return newStore(cfg, sizes{least, most, extra, growPart})
}

func newStore(cfg Config, sz sizes) *Store {
	t := &Store{shards: make([]Shard, cfg.Shards), shift: 64 - uint(bits.Len(uint(cfg.Shards-1))), seed: cfg.Seed}
	sz.most = sz.least << (bits.Len(uint(sz.most/sz.least)) - 1)
	each := sz.most + sz.overflow
	all := &common{newRegion(each * cfg.Shards), sz}
	for i := range t.shards {
		s := &t.shards[i]
		s.lines, s.common = all.memory.line(i*each), all
		s.meters, s.seed = cfg.Meters, cfg.Seed
		s.setHomes(uint64(sz.least))
		s.setLimits()
	}
	return t
}

// Bytes returns how much memory the store uses now: that of all homes.
func (t *Store) Bytes() (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		n += int(s.homes) * lineBytes
		s.Unlock()
	}
	return n
}

// Hash is the hash of a head. All lines of its meter and key are in its shard.
func (t *Store) Hash(meter, key uint64) uint64 { return hash(t.seed, meter, key) }

func hash(seed, meter, key uint64) uint64 {
	hi, lo := bits.Mul64(key^seed, meter^bits.RotateLeft64(seed, 32)|1)
	return hi ^ lo
}

// Sub is the hash of a line that is no head: h is that of its head.
func Sub(h, name uint64) uint64 {
	hi, lo := bits.Mul64(h^name, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

// Shard returns the shard of a head's hash.
func (t *Store) Shard(h uint64) *Shard { return &t.shards[h>>t.shift] }

// Number returns the number of a shard among all.
func (t *Store) Number(s *Shard) int {
	return int(uintptr(unsafe.Pointer(s))-uintptr(unsafe.Pointer(&t.shards[0]))) / int(unsafe.Sizeof(Shard{}))
}

// Shards returns all shards.
func (t *Store) Shards() []Shard { return t.shards }

// Head returns the head of a meter, by its id, and a key, nil if there is none.
func (s *Shard) Head(h, meter, key uint64) *Line {
	for p := unsafe.Add(s.lines, s.home(h)*lineBytes); ; p = unsafe.Add(p, lineBytes) {
		l := (*Line)(p)
		if l.Key == key && s.meters[l.Meter()] == meter && l.Kind() == Head && !l.free() {
			return l
		}
		if l.free() {
			return nil
		}
	}
}

// Find returns the line of a name, which is no head, nil if there is none.
func (s *Shard) Find(h, key, name uint64) *Line {
	for p := unsafe.Add(s.lines, s.home(h)*lineBytes); ; p = unsafe.Add(p, lineBytes) {
		l := (*Line)(p)
		if l.Name == name && l.Key == key {
			return l
		}
		if l.free() {
			return nil
		}
	}
}

// Insert adds a line that is not there, with zero words. It moves no other line. It returns nil if there is no room.
// Grow is to be called before; for a head, Limit is to be kept.
func (s *Shard) Insert(h, key, name uint64) *Line {
	if s.used >= s.most {
		return nil
	}
	i := s.home(h)
	for !s.at(i).free() {
		i++
	}
	if i == s.last {
		return nil
	}
	l := s.at(i)
	l.Name = name
	atomic.StoreUint64(&l.Key, key) // Touch reads it
	s.used++
	return l
}

// Remove frees a line, and moves lines after it back, so that no search ends too early. What it moves keeps its mark.
func (s *Shard) Remove(l *Line) { s.removeAt(s.index(l)) }

func (s *Shard) removeAt(gap int) {
	for i := gap + 1; !s.at(i).free(); i++ {
		if s.home(s.hashOf(s.at(i))) <= gap {
			s.move(gap, i)
			gap = i
		}
	}
	s.put(gap, &Line{}, false)
	s.used--
}

func (s *Shard) move(to, from int) { s.put(to, s.at(from), s.marked(from)) }

func (s *Shard) put(to int, l *Line, marked bool) {
	dst := s.at(to)
	dst.Name, dst.Words = l.Name, l.Words
	atomic.StoreUint64(&dst.Key, l.Key)
	s.setMark(to, marked)
}

// Used returns how many lines are used, and Limit how many are to be used at most where a head is added.
func (s *Shard) Used() int  { return s.used }
func (s *Shard) Limit() int { return s.limit }

// Room returns how many lines may be inserted before Insert returns nil, of heads and others.
func (s *Shard) Room() int { return s.most - s.used }

// Touch brings the line where the search for a hash begins into the processor's cache. It needs no lock, so that the
// misses of many lines overlap. The result is of no use, but keeps the compiler from leaving the read out.
func (s *Shard) Touch(h uint64) uint64 {
	h &= 1<<32 - 1
	i := h * atomic.LoadUint64(&s.homes) >> 32
	if h < atomic.LoadUint64(&s.split) {
		i /= 2
	}
	return atomic.LoadUint64(&s.at(int(i)).Key)
}

func (s *Shard) at(i int) *Line { return (*Line)(unsafe.Add(s.lines, i*lineBytes)) }

func (s *Shard) index(l *Line) int {
	return int(uintptr(unsafe.Pointer(l))-uintptr(s.lines)) / lineBytes
}

// home is the place where the search for a hash begins.
func (s *Shard) home(h uint64) int {
	h &= 1<<32 - 1
	i := h * s.homes >> 32
	if h < s.split {
		i /= 2
	}
	return int(i)
}

// HashOf returns the hash of a line that is used.
func (s *Shard) hashOf(l *Line) uint64 {
	h := hash(s.seed, s.meters[l.Meter()], l.Key)
	if l.Kind() != Head {
		h = Sub(h, l.Name)
	}
	return h
}
