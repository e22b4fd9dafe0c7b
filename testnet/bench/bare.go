package main

import "sync"

// bareTable is a lower bound: a sharded map of fixed cells without replication, expiry, eviction or a choice of
// algorithms.
type bareTable struct {
	max    uint64
	shards [bareShards]bareShard
}

const bareShards = 64

type bareShard struct {
	sync.Mutex
	cells []bareCell // open addressing, linear probing; at most half full
	_     [40]byte
}

// bareCell is a sliding window of two buckets in a cache line.
type bareCell struct {
	key         uint64
	index       int64
	count, last uint64
	_           [4]uint64
}

const bareWindow = int64(benchWindow)

func openBare(s *state) (*limiter, error) {
	t := &bareTable{max: benchLimit}
	cells := 256
	if s == stateMillion {
		cells = 1 << 15
	}
	if s.limited {
		t.max = 1
	}
	for i := range t.shards {
		t.shards[i].cells = make([]bareCell, cells)
	}
	c := newClock()
	return &limiter{clock: c, take: each(func(s *stream, i int) bool { return t.takeKey(s.keys[i], c.Load()) })}, nil
}

func (t *bareTable) takeKey(key uint64, now int64) bool {
	h := key * 0x9e3779b97f4a7c15
	s := &t.shards[h>>58]
	s.Lock()
	defer s.Unlock()
	mask := uint64(len(s.cells) - 1)
	i := h >> 20 & mask
	for s.cells[i].key != key && s.cells[i].key != 0 {
		i = (i + 1) & mask
	}
	c := &s.cells[i]
	c.key = key
	if index := now / bareWindow; c.index != index {
		c.last = 0
		if c.index == index-1 {
			c.last = c.count
		}
		c.index, c.count = index, 0
	}
	left := uint64(bareWindow - now%bareWindow)
	if c.count+c.last*left/uint64(bareWindow) >= t.max {
		return false
	}
	c.count++
	return true
}
